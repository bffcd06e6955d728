"""What runs on the CPU runs on a CUDA device too, with the same answer."""

from __future__ import annotations

import anndata as ad
import dask.array as da
import numpy as np
import pytest
import torch

import dice

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


def test_train_and_denoise_on_cuda():
    reference, query = dice.datasets.synthetic(1, n_reference=400, n_query=100)
    dice.tl.train_prior(reference, n_latent=5, scale=False, training=dice.Training(max_steps=50))
    cuda = dice.tl.denoise(query, reference, rho=20, n_samples=3, copy=True)
    with dice.settings.using(device="cpu"):
        cpu = dice.tl.denoise(query, reference, rho=20, n_samples=3, copy=True)
    for key in ("X_dice", "X_dice_samples"):
        np.testing.assert_allclose(cuda.obsm[key], cpu.obsm[key], atol=0.05, rtol=1e-3)
    dice.tl.denoise(query[:, ::2].copy(), reference, rho=20)


@pytest.mark.parametrize(
    "options",
    [{}, {"likelihood": dice.StudentT(per_gene=True), "method": dice.Gibbs(n_iterations=5)}],
    ids=["direct", "chain"],
)
def test_chunk_sizes_do_not_matter_on_cuda(options):
    reference, query = dice.datasets.synthetic(1, n_reference=400, n_query=100)
    dice.tl.train_prior(reference, n_latent=5, scale=False, training=dice.Training(max_steps=50))
    expected = dice.tl.denoise(query, reference, rho=20, copy=True, **options).obsm["X_dice"]
    for chunk_size in (7, 64, 1000):
        with dice.settings.using(chunk_size=chunk_size):
            found = dice.tl.denoise(query, reference, rho=20, copy=True, **options).obsm["X_dice"]
        np.testing.assert_allclose(found, expected, atol=0.05, rtol=1e-3)


def test_lazy_queries_on_cuda():
    """Blocks are projected by dask, and the network runs on the GPU."""
    reference, query = dice.datasets.synthetic(1, n_reference=400, n_query=100)
    dice.tl.train_prior(reference, n_latent=5, scale=False, training=dice.Training(max_steps=50))
    expected = dice.tl.denoise(query, reference, rho=20, copy=True).obsm["X_dice"]
    lazy = ad.AnnData(da.from_array(np.asarray(query.X), chunks=(30, -1)), obs=query.obs, var=query.var)
    dice.tl.denoise(lazy, reference, rho=20)
    np.testing.assert_allclose(lazy.obsm["X_dice"], expected, atol=0.05, rtol=1e-3)
