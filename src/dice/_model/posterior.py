"""The posterior of latents in scaled units by one evaluation of the denoiser, and credible regions of its samples.

Split Gibbs at fixed rho leaves U distributed as p(U) N(y; U, (s_x^2 + rho^2) I): Gaussian denoising at the single level
s = sqrt(s_x^2 + rho^2). Its mean is one evaluation of the denoiser, its samples are independent runs of the reverse
diffusion from y, and its covariance is s^2 dD/dy (second-order Tweedie). With the noise of counts, the depth of a cell
replaces s_x: the denoiser has learned the noise at that depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from dice._errors import InputError
from dice._model.denoiser import Denoiser, as_column
from dice._model.random_numbers import CellNoise

#: Largest noise level in scaled units: latents of variance 1 leave hardly a trace beneath it.
MAX_NOISE = 10.0
#: Streams of :class:`CellNoise`; :func:`probe_variance` has stream 0.
SAMPLES, CHAINS = 1, 2


@dataclass(frozen=True)
class Posterior:
    """Posterior of cells: mean (n, k), samples (n, S, k) and variance per latent (n,).

    Tensors where it is computed, arrays in the units of the user, lazy arrays of a lazy matrix.
    """

    mean: Any
    samples: Any = None
    variance: Any = None
    #: Share of accepted Langevin moves, where there were any.
    acceptance: float | None = None

    def map(self, function: Callable[[Any, int], Any]) -> Posterior:
        """``function(part, power)`` of every part there is; a variance has twice the power of a mean in its units."""
        parts = ((self.mean, 1), (self.samples, 1), (self.variance, 2))
        mean, samples, variance = (None if part is None else function(part, power) for part, power in parts)
        return Posterior(mean, samples, variance, self.acceptance)

    @classmethod
    def joined(cls, parts: Sequence[Posterior]) -> Posterior:
        """Arrays of several chunks, one below the other."""
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
    *,
    log_depth: Tensor | None = None,
    n_samples: int = 0,
    uncertainty: bool = True,
) -> Posterior:
    """Posterior of y (n, k) at noise levels s () or (n,).

    Parameters
    ----------
    denoiser
        D(z; depth, s).
    y
        Noisy latents.
    s
        Gaussian noise, the same for all cells or one level for each.
    noise
        Random numbers of the cells.
    log_depth
        Log depths (n,) of cells with the noise of counts; None where s is all the noise.
    n_samples
        Number of independent draws for each cell.
    uncertainty
        Whether to compute the variance: without depths from two samples or more, where there are any.
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
    """The same question at the largest noise level that denoisers were trained for, where s is beyond it.

    There the posterior is the prior up to a pull of y / s^2, which is kept.
    """
    share = (MAX_NOISE / as_column(s, y).clamp_min(1e-12)).clamp_max(1)
    return y * share.square(), torch.as_tensor(s, dtype=y.dtype, device=y.device).clamp_max(MAX_NOISE)


@dataclass(frozen=True)
class CredibleRegion:
    """The points that are as near to the posterior samples of a cell as most of the samples are.

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
        if not 0 < level < 1:
            raise InputError(f"level={level} is not between 0 and 1.")
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
