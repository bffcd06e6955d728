"""Objects that AnnData reads lazily: the same prior and the same embedding as from memory."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest

import dice

# AnnData calls its own lazy reading experimental in a warning of its own.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(scope="module")
def pair():
    cells = dice.datasets.pbmc68k()
    return cells[:300].copy(), cells[300:400].copy()


@pytest.mark.parametrize("suffix", ["zarr", "h5ad"])
def test_lazy_objects_train_and_denoise(pair, suffix, tmp_path):
    reference, query = (adata.copy() for adata in pair)
    for name, adata in (("reference", reference), ("query", query)):
        getattr(adata, f"write_{suffix}")(tmp_path / f"{name}.{suffix}")
    lazy_reference, lazy_query = (
        ad.experimental.read_lazy(tmp_path / f"{name}.{suffix}") for name in ("reference", "query")
    )
    for adata in (reference, lazy_reference):
        dice.tl.train_prior(adata, n_latent=5, training=dice.Training(max_steps=10))
    assert lazy_reference.uns["dice"]["sha256"] == reference.uns["dice"]["sha256"]
    for adata in (query, lazy_query):
        dice.tl.denoise(adata, reference)
    np.testing.assert_allclose(np.asarray(lazy_query.obsm["X_dice"]), query.obsm["X_dice"], atol=1e-5)
