"""What runs on the CPU runs on a CUDA device too, with the same answer."""

from __future__ import annotations

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
    dice.tl.train_prior(reference, n_latent=5, scale=False, max_steps=50, device="cuda")
    cpu, cuda = (
        dice.tl.denoise(query, reference, rho=20, n_samples=3, device=device, copy=True) for device in ("cpu", "cuda")
    )
    for key in ("X_dice", "X_dice_samples"):
        np.testing.assert_allclose(cuda.obsm[key], cpu.obsm[key], atol=0.05, rtol=1e-3)
    dice.tl.denoise(query[:, ::2].copy(), reference, rho=20, device="cuda")
