"""Split Gibbs, the paper's Algorithm 1: draw Z | x, U from the likelihood, and U | Z from the prior by diffusion.

At fixed rho the chain samples U from the posterior under the noise of the likelihood plus rho^2 in every direction.
Draws of Z are in :mod:`dice._model.steps` and the reverse diffusion is in :mod:`dice._model.sampler`. If the noise is
the same in all directions, the sampler alone gives the posterior, without a chain. All values are in scaled units.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from dice._errors import InputError
from dice._model.networks import Denoiser
from dice._model.sampler import CHAINS, CellNoise, Posterior, as_column
from dice._model.steps import GaussianStep, LikelihoodStep
from dice.options import Gibbs

#: Maximum length of a chain, unless the user sets the length.
MAX_ITERATIONS = 100


def split_gibbs(
    denoiser: Denoiser, step: LikelihoodStep, start: Tensor, rhos: Sequence[float], noise: CellNoise, settings: Gibbs,
    n_samples: int = 0, *, literal: bool = False, tell: Callable[[], object] = bool,
) -> Posterior:  # fmt: skip
    """Run independent chains from the state U = `start` (n, k). The last states of `n_samples` chains are the samples.

    `rhos` holds the rho of every iteration. With `literal`, the prior step is the network's own ``draw`` instead of the
    few-step sampler. `tell` is called after every iteration; the default ``bool`` does nothing.
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


def rho_schedule(rho: float | Sequence[float], n_iterations: int | None, *, geometric: bool = False) -> np.ndarray:
    """Return the rho of every iteration, given a constant, a pair (start, end) to interpolate, or all values."""
    values = np.atleast_1d(np.asarray(rho, dtype=np.float64))
    if not len(values) or not (values > 0).all():
        raise InputError(f"`rho` must be positive in split Gibbs, or a sequence of positive numbers, got {rho}.")
    if len(values) <= 2:
        space = np.geomspace if geometric else np.linspace
        return space(values[0], values[-1], n_iterations or (30 if len(values) == 1 else 100))
    if n_iterations not in (None, len(values)):
        raise InputError(f"`rho` has {len(values)} values but n_iterations={n_iterations}: leave n_iterations out.")
    return values


def fastest_split(step: GaussianStep, rho: float) -> tuple[GaussianStep, Tensor, float]:
    """Return step, start (n, k) and rho of the fastest chain with the same stationary distribution, at constant rho.

    The division of the noise between the two steps changes the speed of mixing, not the stationary distribution. The
    prior step takes the noise that all directions share: rho^2 plus the smallest variance. The likelihood step takes
    the rest. With isotropic noise the rest is zero, and one iteration equals the direct method. Chains start at the
    posterior mean under standard normal latents.
    """
    total = step.variances + rho**2
    common = total.min()
    start = (step.y @ step.axes / (1 + total)) @ step.axes.T
    return GaussianStep(step.y, total - common, step.axes), start, float(common.sqrt())


def split_length(smallest: float, largest: float, tolerance: float = 0.01) -> tuple[int, int]:
    """Return iterations and burn-in of the fastest chain, given the smallest and largest noise variance.

    The likelihood step leaves at most the share 1 - smallest / largest of an error in the state. The prior step reduces
    the error further. The caller warns if the number of iterations reaches `MAX_ITERATIONS`.
    """
    carried = min(max(1 - smallest / max(largest, 1e-30), 1e-6), 0.999)
    burn_in = max(math.ceil(math.log(tolerance) / math.log(carried)), 2)
    n_iterations = min(max(3 * burn_in, 8), MAX_ITERATIONS)
    return n_iterations, min(burn_in, n_iterations // 3)


class Moments:
    """Running mean and variance of states (n, k) by Welford's method.

    A difference of sums of squares would lose a spread of a thousandth of the latents to rounding.
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
        """Variance (n, k) over all states; unbiased if the states are independent."""
        return (self._squares / max(self.n - 1, 1)).clamp_min(0)
