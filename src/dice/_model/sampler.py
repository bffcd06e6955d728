"""The posterior of latents seen through noise: mean, samples and variance without a chain, and credible regions.

Where the noise is the same in all directions, the stationary law of split Gibbs (:mod:`dice._model.gibbs`) is that of
Gaussian denoising at the level s = sqrt(s_x^2 + rho^2), and no chain is needed: the mean is one evaluation of the
denoiser, samples are independent runs of the reverse diffusion from y, and the covariance is s^2 dD/dy (second-order
Tweedie). With the noise of counts, the depth of a cell replaces s_x: the denoiser has learned the noise at that depth.
Everything is in scaled units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from dice._errors import InputError
from dice._model.random_numbers import CellNoise

if TYPE_CHECKING:
    from dice._model.denoiser import Denoiser

#: Largest noise level in scaled units: latents of variance 1 leave hardly a trace beneath it.
MAX_NOISE = 10.0
#: Streams of :class:`CellNoise`.
PROBES, SAMPLES, CHAINS = 0, 1, 2
#: Last noise level of the few-step sampler: far below the spread of any cell type.
NOISE_FLOOR = 0.02
#: Random probes of the posterior covariance's trace, two evaluations each.
N_PROBES = 2
#: Step of the differences in units of the noise level.
DIFFERENCE = 0.05


@dataclass(frozen=True)
class Posterior:
    """Posterior of cells: mean (n, k), samples (n, S, k) and variance per latent (n,).

    They are tensors in scaled units while they are computed, and arrays in PCA units afterwards.
    """

    mean: Any
    samples: Any = None
    variance: Any = None
    #: Share of accepted Langevin moves, where there were any.
    acceptance: float | None = None

    def map(self, function: Callable[[Any, int], Any]) -> Posterior:
        """Apply ``function(part, power)`` to every part; `power` is 1 for means and samples, and 2 for the variance."""
        parts = ((self.mean, 1), (self.samples, 1), (self.variance, 2))
        mean, samples, variance = (None if part is None else function(part, power) for part, power in parts)
        return Posterior(mean, samples, variance, self.acceptance)

    @classmethod
    def joined(cls, parts: Sequence[Posterior]) -> Posterior:
        """Concatenate the arrays of several chunks."""
        if len(parts) == 1:
            return parts[0]
        columns = ([getattr(part, name) for part in parts] for name in ("mean", "samples", "variance"))
        mean, samples, variance = (None if column[0] is None else np.concatenate(column) for column in columns)
        shares = [part.acceptance for part in parts if part.acceptance is not None]
        return cls(mean, samples, variance, sum(shares) / len(shares) if shares else None)


@torch.inference_mode()
def direct(
    denoiser: Denoiser,
    y: Tensor,
    s: Tensor,
    noise: CellNoise,
    log_depth: Tensor | None = None,
    n_samples: int = 0,
    *,
    uncertainty: bool = True,
) -> Posterior:
    """Posterior of noisy latents y (n, k) at Gaussian noise levels s () or (n,), without a chain.

    `log_depth` (n,) is for cells with the noise of counts; without it, s is all the noise. The variance is that of the
    samples if there are two or more of them and no depths.
    """
    y, s = within_reach(y, s)
    draws = [denoiser.posterior_sample(y, s, noise.spawn(SAMPLES, draw), log_depth) for draw in range(n_samples)]
    samples, variance = torch.stack(draws, dim=1) if draws else None, None
    if uncertainty and samples is not None and n_samples > 1 and log_depth is None:
        variance = samples.var(1).mean(1) if len(samples) else y.new_empty(0)
    elif uncertainty:
        variance = denoiser.variance(y, s, noise, log_depth)
    return Posterior(denoiser(y, s, log_depth), samples, variance)


def within_reach(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Replace a noise level s beyond the training range by the largest level of that range.

    At such levels the posterior is the prior, apart from a pull of y / s^2, which is kept.
    """
    share = (MAX_NOISE / as_column(s, y).clamp_min(1e-12)).clamp_max(1)
    return y * share.square(), torch.as_tensor(s, dtype=y.dtype, device=y.device).clamp_max(MAX_NOISE)


def as_column(s: Tensor, like: Tensor) -> Tensor:
    """Noise levels as a (1, 1) or (n, 1) column in the precision and on the device of `like`."""
    return torch.as_tensor(s, dtype=like.dtype, device=like.device).reshape(-1, 1)


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


@dataclass(frozen=True)
class CredibleRegion:
    """Region around the posterior samples of a cell: points whose distance to the samples is typical for a sample.

    Half of the samples give the region its shape, which may have several parts; the other half set its radius. If the
    samples come from the true posterior, the truth is one more draw, and the region covers it with probability `level`
    or slightly more. For counts the samples are Gaussian with a learned variance, and coverage is approximate
    (docs/posterior.md).
    """

    shape: NDArray[np.float32]
    radius: float
    level: float
    n_neighbors: int

    @classmethod
    def from_samples(cls, samples: NDArray[np.floating], level: float) -> CredibleRegion:
        """The region of one cell from its posterior samples (S, k)."""
        shape, rest = samples[::2], samples[1::2]
        rank = math.ceil((len(rest) + 1) * level)
        if rank > len(rest):
            needed = 2 * math.ceil(level / (1 - level) - 1e-9)
            raise InputError(f"{len(samples)} samples are too few for level={level}: draw at least {needed}.")
        n_neighbors = max(1, round(math.sqrt(len(shape)) / 2))
        radius = np.sort(_distance(shape, rest, n_neighbors))[rank - 1]
        return cls(np.asarray(shape), float(radius), level, n_neighbors)

    def contains(self, points: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Whether each of `points` (m, k) lies in the region."""
        return _distance(self.shape, np.atleast_2d(points), self.n_neighbors) <= self.radius


def _distance(shape: NDArray[np.floating], points: NDArray[np.floating], n_neighbors: int) -> NDArray[np.floating]:
    """Distance of each point to its n-th nearest sample."""
    distances, _ = KDTree(shape).query(points, k=[n_neighbors])
    return np.asarray(distances)[:, 0]
