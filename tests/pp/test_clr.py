"""Normalised proteins."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import gmean

import dice


@pytest.fixture
def cells():
    counts = np.random.default_rng(0).poisson(5, size=(6, 4)).astype(float)
    return ad.AnnData(np.zeros((6, 1)), obsm={"protein": counts}, uns={"protein_names": list("abcd")})


@pytest.mark.parametrize(("across", "axis"), [("features", 1), ("cells", 0)])
def test_counts_are_divided_by_the_geometric_mean(cells, across, axis):
    dice.pp.clr(cells, across=across)
    counts = cells.obsm["protein"]
    expected = np.log1p(counts / gmean(counts + 1, axis=axis, keepdims=True))
    np.testing.assert_allclose(cells.obsm["protein_clr"], expected, rtol=1e-5)
    assert list(cells.obsm["protein_clr"].columns) == list("abcd")
    assert cells.uns["protein_clr"]["params"] == {"key": "protein", "normalisation": "clr", "across": across}


def test_a_cell_does_not_depend_on_others(cells):
    some = cells[:2].copy()
    dice.pp.clr(cells)
    dice.pp.clr(some)
    np.testing.assert_array_equal(some.obsm["protein_clr"], cells.obsm["protein_clr"][:2])


def test_missing_values_stay_missing(cells):
    cells.obsm["protein"][0, 0] = np.nan
    found = dice.pp.clr(cells, copy=True).obsm["protein_clr"].to_numpy()
    assert np.isnan(found).sum() == 1
    counts = cells.obsm["protein"][0, 1:]
    np.testing.assert_allclose(found[0, 1:], np.log1p(counts / gmean(counts + 1)), rtol=1e-5)
    assert "protein_clr" not in cells.obsm


@pytest.mark.parametrize("kind", [sparse.csr_matrix, pd.DataFrame, np.int64])
def test_kinds_of_arrays(cells, kind):
    expected = dice.pp.clr(cells, copy=True).obsm["protein_clr"].to_numpy()
    counts = cells.obsm["protein"]
    made = pd.DataFrame(counts, cells.obs_names) if kind is pd.DataFrame else kind(counts)
    cells.obsm["protein"] = made
    dice.pp.clr(cells)
    np.testing.assert_allclose(cells.obsm["protein_clr"].to_numpy(), expected)


def test_errors(cells):
    with pytest.raises(KeyError, match="no array 'adt'"):
        dice.pp.clr(cells, "adt")
    with pytest.raises(ValueError, match="across"):
        dice.pp.clr(cells, across="rows")
    cells.obsm["protein"][1] = -1
    with pytest.raises(ValueError, match=r"negative or infinite values in 1 cells, for example \['1'\]"):
        dice.pp.clr(cells)
    for odd in (np.full((6, 2), 1j), np.full((6, 2), "high"), np.full((6, 2), "7"), np.ones((6, 2), dtype=object)):
        cells.obsm["protein"] = odd
        with pytest.raises(ValueError, match=r"'protein' must name numeric features of adata.*are not real numbers"):
            dice.pp.clr(cells)
    assert "protein_clr" not in cells.obsm


@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_round_trip(cells, kind, tmp_path):
    dice.pp.clr(cells)
    getattr(cells, f"write_{kind}")(tmp_path / f"cells.{kind}")
    again = getattr(ad, f"read_{kind}")(tmp_path / f"cells.{kind}")
    pd.testing.assert_frame_equal(again.obsm["protein_clr"], cells.obsm["protein_clr"])
    assert again.uns["protein_clr"] == cells.uns["protein_clr"]
