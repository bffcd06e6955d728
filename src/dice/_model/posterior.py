"""The posterior of latents in scaled units: one evaluation of the denoiser.

Split Gibbs at fixed rho leaves U distributed as p(U) N(y; U, (s_x^2 + rho^2) I): Gaussian denoising at the single level
s = sqrt(s_x^2 + rho^2). Its mean is one evaluation of the denoiser, its samples are independent runs of the reverse
diffusion from y, and its covariance is s^2 dD/dy (second-order Tweedie). With the noise of counts, the depth of a cell
replaces s_x: the denoiser has learned the noise at that depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dice._errors import InputError
from dice._model.denoiser import Denoiser, as_column
from dice._model.random_numbers import CellNoise

#: Last noise level of the few-step sampler: far below the spread of any cell type.
NOISE_FLOOR = 0.02
#: Random probes of the posterior covariance's trace, two evaluations each.
N_PROBES = 2
#: Step of the differences in units of the noise level.
DIFFERENCE = 0.05
#: Largest noise level in scaled units: latents of variance 1 leave hardly a trace beneath it.
MAX_NOISE = 10.0
#: Streams of :class:`CellNoise`, one for each purpose.
PROBES, SAMPLES, CHAINS = 0, 1, 2


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
        """Several chunks, one below the other; tensors or arrays."""
        if len(parts) == 1:
            return parts[0]
        columns = ([getattr(part, name) for part in parts] for name in ("mean", "samples", "variance"))
        shares = [part.acceptance for part in parts if part.acceptance is not None]
        mean, samples, variance = (_stacked(column) for column in columns)
        return cls(mean, samples, variance, sum(shares) / len(shares) if shares else None)


def _stacked(parts: list[Any]) -> Any:
    if parts[0] is None:
        return None
    return torch.cat(parts) if isinstance(parts[0], Tensor) else np.concatenate(parts)


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


def direct(
    denoiser: Denoiser,
    y: Tensor,
    s: Tensor,
    noise: CellNoise,
    *,
    log_depth: Tensor | None = None,
    n_samples: int = 0,
    uncertainty: bool = True,
    reference_noise: float | None = None,
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
    reference_noise
        Noise that the reference latents carry themselves; given, the mean is that of the clean latents
        beneath (:func:`deconvolved_mean`).
    """
    with torch.inference_mode():
        y, s = within_reach(y, s)
        if reference_noise is None:
            mean = denoiser(y, s, log_depth)
        else:
            mean = deconvolved_mean(denoiser, y, s, reference_noise)
        samples = None
        if n_samples:
            draws = [
                denoiser.posterior_sample(y, s, noise.spawn(SAMPLES, draw), log_depth) for draw in range(n_samples)
            ]
            samples = torch.stack(draws, dim=1)
        variance = None
        if uncertainty and samples is not None and n_samples > 1 and log_depth is None:
            variance = samples.var(1).mean(1) if len(samples) else y.new_empty(0)
        elif uncertainty:
            variance = denoiser.variance(y, s, noise, log_depth)
    return Posterior(mean, samples, variance)


def within_reach(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """The same question at the largest noise level that denoisers were trained for, where s is beyond it.

    There the posterior is the prior up to a pull of y / s^2, which is kept.
    """
    share = (MAX_NOISE / as_column(s, y).clamp_min(1e-12)).clamp_max(1)
    return y * share.square(), torch.as_tensor(s, dtype=y.dtype, device=y.device).clamp_max(MAX_NOISE)


def deconvolved_mean(denoiser: Denoiser, y: Tensor, s: Tensor, reference_noise: float) -> Tensor:
    """Mean of the latents without the reference's own noise, by one evaluation at a lower level.

    The prior was learned from latents with noise s_r, so that y is only noisier by t^2 = s^2 - s_r^2. Tweedie's
    formula at level t gives the score of y, and with the full s^2 the mean of what lies beneath.
    """
    total = as_column(s, y).square()
    extra = (total - reference_noise**2).clamp_min(1e-4 * total)
    return y + total / extra * (denoiser(y, extra.sqrt()[:, 0]) - y)


#: What torch raises where the memory of a device is full.
OutOfMemory = torch.cuda.OutOfMemoryError


class Halving:
    """Computes a chunk as a whole where it fits, else in halves; what did not fit once is not tried again.

    A cell's result does not depend on the others of its chunk, so that the halves add up to the whole.
    """

    def __init__(self) -> None:
        #: Most cells that are tried at once; None as long as everything fitted.
        self.limit: int | None = None

    def __call__(self, compute: Callable[[slice], Posterior], n_cells: int) -> Posterior:
        """``compute(slice(0, n_cells))``, in as many parts as needed."""
        parts: list[Posterior] = []
        start = 0
        while start < n_cells or not parts:
            stop = min(start + (self.limit or n_cells), n_cells)
            part = self._attempt(compute, slice(start, stop))
            if part is not None:
                parts.append(part)
                start = stop
        return Posterior.joined(parts)

    def _attempt(self, compute: Callable[[slice], Posterior], rows: slice) -> Posterior | None:
        try:
            return compute(rows)
        except OutOfMemory as error:
            if rows.stop - rows.start < 2:
                raise InputError(
                    "The memory of the device is too small for a single cell: set dice.settings.device = 'cpu'."
                ) from error
        # Only here, where the error no longer holds on to the tensors of the failed attempt.
        self.limit = (rows.stop - rows.start) // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return None
