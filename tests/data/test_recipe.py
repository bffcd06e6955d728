"""Variable genes that were chosen before others were removed."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
from scipy import sparse

from dice._data.recipe import left_over


@pytest.fixture(scope="module")
def cells() -> ad.AnnData:
    """Counts of four types in 3,000 genes, of which some vary; log-normalised."""
    rng = np.random.default_rng(0)
    profiles = rng.gamma(0.5, size=3000) * rng.gamma(2.0, 0.5, size=(4, 3000))
    adata = ad.AnnData(sparse.csr_matrix(rng.poisson(profiles[np.arange(400) % 4]).astype(np.float32)))
    adata.obs["batch"] = ["a", "b"] * 200
    adata.layers["counts"] = adata.X.copy()
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    return adata[:, np.asarray(adata.X.sum(0)).ravel() > 0].copy()


CALLS = {
    "seurat": {"n_top_genes": 800},
    "cutoffs": {},
    "seurat_v3": {"n_top_genes": 800, "flavor": "seurat_v3", "layer": "counts"},
}


@pytest.mark.parametrize("batch_key", [None, "batch"])
@pytest.mark.parametrize("call", CALLS)
def test_a_choice_holds_until_genes_are_removed(cells, call, batch_key):
    adata = cells.copy()
    sc.pp.highly_variable_genes(adata, batch_key=batch_key, **CALLS[call])
    assert not left_over(adata)
    assert not left_over(adata[:, adata.var["highly_variable"]])
    assert not left_over(adata[:, 20:])  # A few genes change nothing.
    score = adata.var["variances_norm" if call == "seurat_v3" else "dispersions_norm"]
    variable = adata[:, (score > score.quantile(0.6)) | (np.arange(adata.n_vars) % 9 == 0)]
    some = variable[:, np.arange(variable.n_vars) % 2 == 0]
    assert 0 < some.var["highly_variable"].mean() < 1
    assert left_over(some)


def test_other_columns_are_left_alone(cells):
    adata = cells.copy()
    adata.var["highly_variable"] = np.arange(adata.n_vars) < 100
    assert not left_over(adata[:, ::3])
