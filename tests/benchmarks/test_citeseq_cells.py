from __future__ import annotations

import doctest

import anndata as ad
import citeseq_cells
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

from dice._data.read import names
from dice._errors import InputError, SlotError


@pytest.fixture
def file(citeseq, tmp_path) -> str:
    citeseq.write_h5ad(tmp_path / "pbmc_seurat_v4.h5ad")
    return str(tmp_path / "pbmc_seurat_v4.h5ad")


def test_filters_of_scvi_tools(citeseq, file) -> None:
    cells = citeseq_cells.pbmc_citeseq(path=file)
    assert list(cells.obs_names) == list(citeseq.obs_names[5:])
    assert isinstance(cells.X, sparse.csr_matrix)
    assert cells.X.dtype == np.float32
    np.testing.assert_array_equal(cells.X.toarray(), citeseq.X[5:].toarray())
    assert list(cells.obs["cell_type"].cat.categories) == ["ASDC", "B naive", "CD4 Naive", "NK"]
    assert cells.obsm["protein_counts"].shape == (595, 169)


def test_everything_on_request(citeseq, file) -> None:
    cells = citeseq_cells.pbmc_citeseq(filtered=False, path=file)
    assert cells.shape == citeseq.shape
    assert "Doublet" in cells.obs["cell_type"].cat.categories


def test_clones_are_merged() -> None:
    names = ["CD3-1", "CD3-2", "Notch-1", "Notch-2", "Rat-IgG1-1", "Rat-IgG1-2", "CD9-1", "HLA-DR"]
    proteins = pd.DataFrame([[1, 2, 4, 8, 16, 32, 64, 128]], columns=names)
    merged = citeseq_cells._merge_clones(proteins)
    assert list(merged) == ["CD3", *names[2:]]
    assert merged.iloc[0].tolist() == [3, 4, 8, 16, 32, 64, 128]


def test_another_file_is_refused(citeseq, tmp_path) -> None:
    del citeseq.obs["celltype.l2"]
    citeseq.write_h5ad(tmp_path / "other.h5ad")
    with pytest.raises(InputError, match=r"no obs\['celltype.l2'\].*scvi-tools distributes"):
        citeseq_cells.pbmc_citeseq(path=tmp_path / "other.h5ad")


def test_split_of_the_paper(file) -> None:
    cells = citeseq_cells.pbmc_citeseq(path=file)
    before = cells.X.data.tobytes(), cells.obs.to_csv(), list(cells.uns), list(cells.layers)
    options = {"n_cells": 400, "n_query": 40, "n_top_genes": 150}
    reference, query = citeseq_cells.paper_citeseq_split(cells, **options)
    assert (cells.X.data.tobytes(), cells.obs.to_csv(), list(cells.uns), list(cells.layers)) == before
    assert reference.shape == (360, 150)
    assert query.shape == (40, 150)
    assert not set(reference.obs_names) & set(query.obs_names)
    assert reference.X.dtype == np.float32
    assert names(reference, "layers") == ["counts"]
    assert not reference.is_view
    share = cells.obs["cell_type"].value_counts(normalize=True)
    for part in (reference, query):
        found = part.obs["cell_type"].value_counts().reindex(share.index).fillna(0)
        assert np.abs(found - share * part.n_obs).max() <= 1.5
    again, _ = citeseq_cells.paper_citeseq_split(cells, **options)
    np.testing.assert_array_equal(again.X, reference.X)
    other, _ = citeseq_cells.paper_citeseq_split(cells, **options, random_state=1)
    assert set(other.obs_names) != set(reference.obs_names)


def test_split_without_correction_is_the_plain_recipe(file) -> None:
    cells = citeseq_cells.pbmc_citeseq(path=file)
    del cells.obs["lane"]
    parts = citeseq_cells.paper_citeseq_split(cells, batch_key=None, n_cells=400, n_query=40, n_top_genes=150)
    joint = ad.concat(parts)
    hand = cells[joint.obs_names].copy()
    sc.pp.normalize_total(hand, target_sum=1e4)
    sc.pp.log1p(hand)
    np.testing.assert_allclose(joint.X.toarray(), hand[:, joint.var_names].X.toarray(), rtol=1e-5)


def test_largest_remainders() -> None:
    labels = pd.Series(["a"] * 5 + ["b"] * 4 + ["c"] + [None] * 2)
    for n in range(1, 13):
        chosen = citeseq_cells._stratified(labels, n, np.random.default_rng(0))
        assert len(set(chosen)) == n
        assert (np.diff(chosen) > 0).all()
        counts = labels.iloc[chosen].value_counts(dropna=False)
        expected = labels.value_counts(dropna=False) * n / 12
        assert (counts.reindex(expected.index).fillna(0) - expected).abs().max() < 1


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"labels_key": "nope"}, SlotError, "no column 'nope'"),
        ({"batch_key": "nope"}, SlotError, "no column 'nope'"),
        ({"n_cells": 10_000}, InputError, "10000 of 600 cells"),
        ({"n_cells": 100, "n_query": 100}, InputError, "no reference"),
    ],
)
def test_errors_name_the_fix(citeseq, options, error, text) -> None:
    with pytest.raises(error, match=text):
        citeseq_cells.paper_citeseq_split(citeseq, **({"labels_key": "celltype.l2"} | options))


def test_example_runs() -> None:
    assert doctest.testmod(citeseq_cells).failed == 0
