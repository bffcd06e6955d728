"""The held-out loss in units of the best linear denoiser."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dice._model.networks import Denoiser
from dice._model.training_data import HeldOut

VARIANCES = torch.tensor([4.0, 1.0, 0.25])
LEVELS = torch.as_tensor(np.geomspace(0.1, 2, 6), dtype=torch.float32)


def denoiser(function):
    """What a judge needs of a denoiser that is a function."""
    return SimpleNamespace(n_latent=3, error=lambda rows, s, noise: Denoiser.error(function, rows, s, noise))


def test_the_wiener_filter_has_loss_one_and_the_truth_none():
    clean = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(5)) * VARIANCES.sqrt()
    wiener, same = denoiser(lambda z, s: z * VARIANCES / (VARIANCES + s**2)), denoiser(lambda z, s: z)
    squares = LEVELS.square()[:, None]
    linear = (VARIANCES * squares / (VARIANCES + squares)).mean(1)
    judge = HeldOut(clean, LEVELS, linear, wiener, seed=0)
    assert judge.loss(wiener) == pytest.approx(1, abs=0.02)
    assert judge.loss(denoiser(lambda z, s: clean)) == 0
    assert judge.loss(same) == pytest.approx(float((squares[:, 0] / linear).mean()), rel=0.02)
    assert judge.loss(same) == HeldOut(clean, LEVELS, linear, wiener, seed=0).loss(same)
    # Without known errors the denoiser at hand has loss one.
    assert HeldOut(clean, LEVELS, None, same, seed=0).loss(same) == pytest.approx(1.0)
