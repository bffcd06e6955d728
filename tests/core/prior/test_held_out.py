"""The held-out loss in units of the best linear denoiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dice._core.prior.held_out import HeldOut


def test_the_wiener_filter_has_loss_one_and_the_truth_none():
    variances = torch.tensor([4.0, 1.0, 0.25])
    clean = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(5)) * variances.sqrt()
    judge = HeldOut(clean, variances, (0.1, 2.0), seed=0)
    np.testing.assert_allclose(judge.levels, np.geomspace(0.1, 2, 6), rtol=1e-6)
    assert judge.loss(lambda z, s: z * variances / (variances + s**2)) == pytest.approx(1, abs=0.02)
    assert judge.loss(lambda z, s: clean) == 0
    noise = [3 * s**2 / (variances * s**2 / (variances + s**2)).sum() for s in judge.levels]
    assert judge.loss(lambda z, s: z) == pytest.approx(float(np.mean(noise)), rel=0.02)
    assert judge.loss(lambda z, s: z) == HeldOut(clean, variances, (0.1, 2.0), seed=0).loss(lambda z, s: z)
