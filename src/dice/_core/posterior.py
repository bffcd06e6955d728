"""Posterior of the latents of one chunk of cells."""

from __future__ import annotations

import torch
from torch import Tensor

from dice._core.prior import Prior


@torch.inference_mode()
def direct_mean(prior: Prior, y: Tensor, s: Tensor) -> Tensor:
    """E[U | y] by one evaluation, exact where the noise of y is isotropic.

    Split Gibbs at fixed rho leaves U distributed as p(U) N(y; U, (s_x^2 + rho^2) I), so that its mean is
    plain Gaussian denoising at s = sqrt(s_x^2 + rho^2).
    """
    return prior.denoise(y, s)
