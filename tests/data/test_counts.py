"""Counts in a layer beneath log-normalised expression."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

import dice
from dice._data.checks import CountsLayer
from dice._data.matrix import Matrix

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(2, size=(30, 12)).astype(np.float32)
COUNTS[4] = 0
FACTOR = 100 / np.maximum(COUNTS.sum(1), 1)


def layered(kind=np.asarray, factor=FACTOR):
    adata = ad.AnnData(kind(np.log1p(COUNTS * factor[:, None]).astype(np.float32)))
    adata.layers["counts"] = kind(COUNTS.copy())
    return adata


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_depths_and_factors(kind):
    adata = layered(kind)
    layer = CountsLayer.of(adata, "counts", Matrix(adata))
    depth = layer.log_depth()
    assert np.isnan(depth[4])
    np.testing.assert_allclose(np.delete(depth, 4), -np.log(np.delete(FACTOR, 4)), rtol=1e-4)
    cells = layer.take(np.array([2, 4, 9]))
    np.testing.assert_array_equal(cells.counts.toarray(), COUNTS[[2, 4, 9]])
    np.testing.assert_allclose(cells.factor, [FACTOR[2], np.nan, FACTOR[9]], rtol=1e-5)
    beneath = layer.beneath(adata.X[5:9], slice(5, 9))
    np.testing.assert_array_equal(beneath.counts.toarray(), COUNTS[5:9])
    assert beneath.whole.all()


def test_a_cell_without_counts_has_no_depth_whatever_its_expression():
    """Only the first cells are compared with their counts."""
    adata = layered()
    layer = CountsLayer.of(adata, "counts", Matrix(adata))
    adata.layers["counts"][9] = 0
    assert np.flatnonzero(np.isnan(layer.log_depth())).tolist() == [4, 9]


def test_counts_of_other_cells_or_other_transformations_are_refused():
    adata = layered()
    for wrong in (COUNTS[::-1], COUNTS[:, ::-1], COUNTS + 1):
        adata.layers["counts"] = wrong.copy()
        with pytest.raises(dice.DiceError, match="is not log1p of normalised counts in"):
            CountsLayer.of(adata, "counts", Matrix(adata))
    adata.layers["counts"] = COUNTS / 2
    with pytest.raises(dice.DiceError, match="does not hold raw counts: name another layer with counts_layer="):
        CountsLayer.of(adata, "counts", Matrix(adata))
    with pytest.raises(dice.DiceError, match=r"no layer 'raw' in adata.layers; available"):
        CountsLayer.of(adata, "raw", Matrix(adata))


@pytest.mark.parametrize(("moved", "refused"), [(0.04, False), (0.06, True)])
def test_a_little_rounding_is_no_other_expression(moved, refused):
    """One entry may be off by 0.05; the factor of a cell hardly follows it."""
    adata = layered()
    adata.X[7, 3] += moved
    if refused:
        with pytest.raises(dice.DiceError, match="is not log1p"):
            CountsLayer.of(adata, "counts", Matrix(adata))
    else:
        CountsLayer.of(adata, "counts", Matrix(adata))
