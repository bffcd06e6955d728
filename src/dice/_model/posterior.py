"""The posterior of latents in scaled units, directly or by split Gibbs, and credible regions of its samples.

Split Gibbs (the paper's Algorithm 1) draws Z | x, U from the likelihood and U | Z from the prior by reverse diffusion.
At fixed rho the chain leaves U distributed as the posterior whose noise is the likelihood's plus rho^2 in every
direction. If the noise is the same in all directions, this is Gaussian denoising at the level s = sqrt(s_x^2 + rho^2),
and no chain is needed: the mean is one evaluation of the denoiser, samples are independent runs of the reverse
diffusion from y, and the covariance is s^2 dD/dy (second-order Tweedie). With the noise of counts, the depth of a cell
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
from dice._model.steps import GaussianStep, LikelihoodStep
from dice.options import Gibbs

#: Largest noise level in scaled units: latents of variance 1 leave hardly a trace beneath it.
MAX_NOISE = 10.0
#: Longest chain that is chosen without being asked for.
MAX_ITERATIONS = 100
#: Streams of :class:`CellNoise`; :func:`probe_variance` has stream 0.
SAMPLES, CHAINS = 1, 2


@dataclass(frozen=True)
class Posterior:
    """Posterior of cells: mean (n, k), samples (n, S, k) and variance per latent (n,).

    Tensors where it is computed, arrays in the units of the user.
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


def rho_schedule(rho: float | Sequence[float], n_iterations: int | None, *, geometric: bool = False) -> np.ndarray:
    """rho of every iteration: a constant, a (start, end) pair to interpolate, or all of them."""
    values = np.atleast_1d(np.asarray(rho, dtype=np.float64))
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or (values <= 0).any():
        raise InputError(f"`rho` must be positive in split Gibbs, or a sequence of positive numbers, got {rho}.")
    if len(values) <= 2:
        space = np.geomspace if geometric else np.linspace
        return space(values[0], values[-1], n_iterations or (30 if len(values) == 1 else 100))
    if n_iterations not in (None, len(values)):
        raise InputError(f"rho has {len(values)} values but n_iterations={n_iterations}: leave n_iterations out.")
    return values


def silent(*_: object) -> None:
    """Report no progress."""


def split_gibbs(
    denoiser: Denoiser,
    step: LikelihoodStep,
    start: Tensor,
    rhos: Sequence[float | Tensor],
    noise: CellNoise,
    settings: Gibbs,
    n_samples: int = 0,
    *,
    literal: bool = False,
    tell: Callable[[], object] = silent,
) -> Posterior:
    """Run independent chains from the state U = `start` (n, k); the last states of `n_samples` chains are samples.

    `rhos` has the coupling of every iteration, one number or one for each cell. With `literal`, the prior step is the
    network's own ``draw`` instead of the few-step sampler. `tell` is called after every iteration.
    """
    draw = denoiser.draw if literal else denoiser.posterior_sample
    n_chains, smoothed = max(settings.n_chains, n_samples), settings.average == "rao-blackwell"
    smooth, states, last = Moments(start), Moments(start), []
    with torch.no_grad():
        for chain in range(n_chains):
            u = z = start
            for iteration, rho in enumerate(rhos):
                random = noise.spawn(CHAINS, chain, iteration)
                level = torch.as_tensor(rho, dtype=start.dtype, device=start.device)
                z = step.draw(z, u, as_column(level, start), random.spawn(0))
                u = draw(z, level, random.spawn(1))
                if iteration >= min(settings.burn_in or 0, len(rhos) - 1):
                    states.add(u)
                    if smoothed:
                        smooth.add(denoiser(z, level))
                tell()
            last.append(u)
        variance = denoiser.variance(z, level, noise) if states.n == 1 else states.variance.mean(1)
    final = torch.stack(last, dim=1)
    mean = smooth.mean if smoothed else final.mean(1)
    return Posterior(mean, final[:, :n_samples] if n_samples else None, variance)


def fastest_split(step: GaussianStep, rho: float) -> tuple[GaussianStep, Tensor, Tensor]:
    """Step, start (n, k) and rho (n,) of the fastest chain with the same stationary law, for a constant rho.

    The division of the noise between the two steps changes the mixing, not the stationary law. The part that is common
    to all directions, a^2 = rho^2 + the smallest variance, goes into the prior step, and the likelihood keeps the rest.
    With isotropic noise the rest is zero, and one iteration equals the direct method. Chains start at the posterior
    mean for standard normal latents.
    """
    total = step.variances + rho**2
    common = total.min(1, keepdim=True).values
    start = (step.y @ step.axes / (1 + total)) @ step.axes.T
    return GaussianStep(step.y, total - common, step.axes), start, common.sqrt()[:, 0]


def split_length(smallest: float, largest: float, tolerance: float = 0.01) -> tuple[int, int]:
    """Iterations and burn-in of the fastest chain, from the smallest and largest noise variance.

    The mean of Z carries at most the share 1 - smallest / largest of U's error over to the next iteration. The prior
    pulls as well, so that this is an upper bound. The caller warns if the length is `MAX_ITERATIONS`.
    """
    carried = min(max(1 - smallest / max(largest, 1e-30), 1e-6), 0.999)
    burn_in = max(math.ceil(math.log(tolerance) / math.log(carried)), 2)
    n_iterations = min(max(3 * burn_in, 8), MAX_ITERATIONS)
    return n_iterations, min(burn_in, n_iterations // 3)


class Moments:
    """Running mean and variance of states (n, k) by Welford's method.

    A difference of sums of squares would lose a spread that is a thousandth of the latents to rounding.
    """

    def __init__(self, like: Tensor) -> None:
        self.n = 0
        self.mean = torch.zeros_like(like)
        self._squares = torch.zeros_like(like)

    def add(self, value: Tensor) -> None:
        """Add one state."""
        self.n += 1
        before = value - self.mean
        self.mean = self.mean + before / self.n
        self._squares = self._squares + before * (value - self.mean)

    @property
    def variance(self) -> Tensor:
        """Variance of all states, unbiased if they are independent."""
        return (self._squares / max(self.n - 1, 1)).clamp_min(0)


@dataclass(frozen=True)
class CredibleRegion:
    """Region of points that are as near to the posterior samples of a cell as most of the samples are.

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
            raise InputError(f"`level` must be a number between 0 and 1, got {level}.")
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
