"""Draws from p(U | z) by reverse diffusion, and its variance by slopes, for any denoiser; scaled units."""

from __future__ import annotations

import torch
from torch import Tensor

from dice._model.denoiser import Denoiser, as_column
from dice._model.random_numbers import CellNoise

#: Last noise level of the few-step sampler: far below the spread of any cell type.
NOISE_FLOOR = 0.02
#: Random probes of the posterior covariance's trace, two evaluations each.
N_PROBES = 2
#: Step of the differences in units of the noise level.
DIFFERENCE = 0.05
#: Stream of :class:`CellNoise` for the probes.
PROBES = 0


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


def probe_variance(denoiser: Denoiser, y: Tensor, s: Tensor, noise: CellNoise) -> Tensor:
    """Mean posterior variance per latent (n,): s^2 tr(dD/dy) / k by Hutchinson probes.

    Products with dD/dy are central differences over a twentieth of the noise level. Torch's forward-mode
    differentiation would do the same work, but keeps a global level that threads cannot share.
    """
    level = as_column(s, y)
    step = DIFFERENCE * level
    probes = noise.spawn(PROBES)
    trace = torch.zeros(len(y), dtype=y.dtype, device=y.device)
    for probe in range(N_PROBES):
        v = probes.signs(probe, y.shape[1]).to(y.dtype)
        product = (denoiser(y + step * v, s) - denoiser(y - step * v, s)) / (2 * step)
        trace = trace + (v * product).sum(1)
    return (level[:, 0].square() * trace / (N_PROBES * y.shape[1])).clamp_min(0)
