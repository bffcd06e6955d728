"""Draws from p(U | z): reverse diffusion from a noisy latent down to a clean one, in scaled units."""

from __future__ import annotations

import torch
from torch import Tensor

from dice._core.posterior.noise import CellNoise
from dice._core.prior.denoiser import Denoiser, as_column

#: Where the few-step sampler jumps to zero noise: far below the spread of any cell type.
NOISE_FLOOR = 0.02


def noise_grid(start: Tensor, n_steps: int) -> Tensor:
    """Levels (n_steps, n or 1, 1) that fall from `start` (n or 1, 1), evenly in their cube root."""
    end = torch.minimum(torch.full_like(start, NOISE_FLOOR), 0.2 * start)
    share = torch.linspace(0, 1, n_steps, dtype=start.dtype, device=start.device)[:, None, None]
    return (start.pow(1 / 3) + share * (end.pow(1 / 3) - start.pow(1 / 3))).pow(3)


def sample_sde(denoiser: Denoiser, z: Tensor, s: Tensor, noise: CellNoise, *, n_steps: int = 10) -> Tensor:
    """One posterior draw (n, k) for each cell by DPM-Solver++(2M) for the reverse SDE.

    It starts *at* z, which already is the clean latent plus noise of level s (Lu et al. 2022). The
    probability-flow ODE from the same start would give every draw the same value.
    """
    levels = noise_grid(as_column(s, z), n_steps)
    x = z
    previous: tuple[Tensor, Tensor] | None = None
    for step in range(n_steps - 1):
        a, b = levels[step], levels[step + 1]
        mean = denoiser(x, a[:, 0])
        h, e2 = torch.log(a / b), (b / a).square()
        x = e2 * x + (1 - e2) * mean
        if previous is not None:
            # Second order: the denoised value is extrapolated linearly in the log noise level.
            last_mean, last_h = previous
            x = x + (1 - e2) / 2 * (h / last_h) * (mean - last_mean)
        x = x + b * (1 - e2).sqrt() * noise.normal(step, z.shape[1])
        previous = (mean, h)
    return denoiser(x, levels[-1][:, 0])
