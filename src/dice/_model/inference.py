"""The posterior of a chunk of cells: the decisions of a call, and their application to latents or expression."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._errors import InputError
from dice._model.gibbs import fastest_split, rho_schedule, split_gibbs, split_length
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.networks import Denoiser
from dice._model.offsets import Offsets
from dice._model.prior import LearnedPrior
from dice._model.sampler import CellNoise, Posterior, direct
from dice._model.steps import GaussianStep, LangevinStep, LikelihoodStep, likelihood_step
from dice._types import Chunk, Floats, Mask
from dice.options import Gaussian, Gibbs, LogDensity, Method, Options, StudentT, torch_device

#: The likelihood of "auto" without the noise of counts, and the number of cells per network call.
GAUSSIAN, NETWORK_CHUNK = Gaussian(), 8192
#: Default rho in units of the latent scale: with the noise of counts, and with assumed noise (docs/rho.md).
COUNTED_RHO, ASSUMED_RHO = 0.0, 0.5


@dataclass(frozen=True)
class Plan:
    """Decisions of a call, in PCA units. They are made before cells are denoised.

    ``method`` is ``"direct"`` (one evaluation of the denoiser), ``"split"`` (the fastest chain for anisotropic Gaussian
    noise) or ``"gibbs"`` (Algorithm 1 as printed, with `rhos` as its schedule).
    """

    method: Method
    likelihood: Gaussian | StudentT | LogDensity
    rhos: NDArray[np.float64]
    gibbs: Gibbs
    n_samples: int
    uncertainty: bool
    #: Standard deviation of the noise of the data set, and of the latents, which also have noise of filled-in genes.
    noise: float
    level: float
    #: Whether the noise is that of counts, which follows from the depth of a cell. Otherwise it is Gaussian.
    measured: bool = False
    #: The shift of the query, and its record in ``.uns``.
    offsets: Offsets | None = None
    shift: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rho(self) -> float:
        return float(self.rhos[-1])

    @property
    def n_steps(self) -> int:
        """Number of steps for every cell: the iterations of all its chains, or 1 for the direct method."""
        return 1 if self.method == "direct" else max(self.gibbs.n_chains, self.n_samples) * len(self.rhos)

    @property
    def needs_genes(self) -> bool:
        """Whether the steps need the expression of a cell, not only its latents."""
        return callable(self.likelihood) or (isinstance(self.likelihood, StudentT) and self.likelihood.per_gene)

    @classmethod
    def of(
        cls, options: Options, prior: LearnedPrior, likelihood: GaussianLikelihood, latents: Latents, *,
        measured: bool, **shift: Any,
    ) -> Self:  # fmt: skip
        """Make the plan of a call on cells with these latents; `shift` holds the fields ``offsets`` and ``shift``.

        If ``burn_in`` is None, it is a third of the iterations or, for the fastest chain, follows from its mixing. rho
        is limited to the largest value that the network was trained for.
        """
        scale, kind = prior.latent_scale, GAUSSIAN if isinstance(options.likelihood, str) else options.likelihood
        noise = likelihood.noise(latents, options)
        level = float(np.sqrt(noise**2 + likelihood.added.mean()))
        default = (COUNTED_RHO if measured else ASSUMED_RHO) * scale
        rho = default if isinstance(options.rho, str) else options.rho
        method: Method = "direct" if measured else options.computed_by(isotropic=likelihood.isotropic)
        gibbs, rhos, burn_in = options.gibbs, np.ravel(rho), None
        if method == "gibbs":
            rhos = rho_schedule(rho, gibbs.n_iterations, geometric=gibbs.schedule == "geometric")
            burn_in = len(rhos) // 3
        if method == "split":
            length, burn_in = split_length(*(value + rhos[0] ** 2 for value in likelihood.noise_range(noise)))
            rhos = np.repeat(rhos, gibbs.n_iterations or length)
        if gibbs.burn_in is None and burn_in is not None:
            gibbs = replace(gibbs, burn_in=burn_in)
        rhos = np.minimum(rhos, prior.denoiser.largest_noise * scale)
        return cls(method, kind, rhos, gibbs, options.n_samples, options.uncertainty, noise, level, measured, **shift)


@dataclass(frozen=True)
class Inference:
    """Function that computes the posterior of any chunk of cells."""

    prior: LearnedPrior
    likelihood: GaussianLikelihood
    plan: Plan
    #: Seeds (n,) of all cells.
    seeds: NDArray[np.int64]
    #: Name of the device.
    device: str
    #: Mask (n,) of the cells that the loadings were computed from.
    own: Mask | None = None
    #: Called with the number of cells after each step (see `Plan.n_steps`); ``bool`` does nothing.
    tell: Callable[[int], object] = bool

    def __call__(self, latents: Latents, rows: slice, chunk: Chunk | None = None) -> Posterior:
        """Return the posterior of the cells at `rows` as arrays in PCA units.

        `chunk` is the expression of the cells. It is needed only if the plan needs genes.
        """
        parts = []
        for start in range(0, max(len(latents), 1), NETWORK_CHUNK):
            part = slice(start, min(start + NETWORK_CHUNK, len(latents)))
            place = slice(rows.start + part.start, rows.start + part.stop)
            parts.append(self._posterior(latents[part], place, None if chunk is None else chunk[part]))
        return Posterior.joined(parts)

    def _posterior(self, latents: Latents, rows: slice, chunk: Chunk | None) -> Posterior:
        plan, offsets, scale = self.plan, self.plan.offsets, self.prior.latent_scale
        x = self.likelihood.standardizer(chunk).dense() if plan.needs_genes else None
        y = latents.y
        if plan.measured and self.own is not None:
            # The loadings contain noise of the reference's own cells. Correct the latents of these cells.
            y = self.likelihood.honest(latents, self.own[rows])
        if offsets is not None and not plan.measured:
            # The shift lies in the span of the loadings, so it does not change the residual.
            away = offsets.of(y, rows)
            y, x = y - away, None if x is None else x - away @ self.likelihood.loadings.T
        noise, scaled = self._random(self.seeds[rows]), self._tensor(y) / scale
        if plan.method == "direct":
            found = self._direct(scaled, latents, noise)
            self.tell(len(y))
        else:
            found = self._chain(scaled, latents, noise, x)
        found = found if plan.uncertainty else replace(found, variance=None)
        result = found.map(lambda part, power: (part * scale**power).cpu().numpy())
        if offsets is not None and plan.measured:
            # The denoiser knows the noise of cells as they were measured, so the shift is removed after denoising.
            away = offsets.of(result.mean, rows)
            samples = None if result.samples is None else result.samples - away[:, None]
            result = replace(result, mean=result.mean - away, samples=samples)
        if latents.empty.any():
            self._set_prior(result, latents.empty, rows)
        if not all(np.isfinite(part).all() for part in (result.mean, result.variance) if part is not None):
            noisy = f"noise {plan.noise:.3g} and rho {plan.rhos.max():.3g}"
            raise InputError(f"The posterior is not finite with {noisy}: pass values of the size of the latents.")
        return result

    def _direct(self, y: Tensor, latents: Latents, noise: CellNoise) -> Posterior:
        plan, scale, depth = self.plan, self.prior.latent_scale, None
        if plan.measured:
            level = torch.tensor(plan.rho / scale, device=y.device)
            # Empty cells have no depth; they get the prior later. Cells that are not counts get the typical depth.
            depth = self._tensor(self.prior.known_depth(latents.log_depth))
        else:
            level = torch.tensor(np.hypot(plan.level, plan.rho) / scale, dtype=torch.float32, device=y.device)
        found = direct(self._denoiser, y, level, noise, depth, plan.n_samples, uncertainty=plan.uncertainty)
        if found.variance is None or not plan.measured:
            return found
        # The denoiser multiplies the noise of filled-in genes by its slope, and their variance by its square.
        added = self._tensor(self.likelihood.added / scale**2) * self._denoiser.slope.to(y.device).square()
        return replace(found, variance=found.variance + float(added.mean()))

    def _chain(self, y: Tensor, latents: Latents, noise: CellNoise, x: Floats | None) -> Posterior:
        plan, scale, s = self.plan, self.prior.latent_scale, self.plan.noise
        spread, axes = map(self._tensor, np.linalg.eigh(self.likelihood.covariance.astype(np.float64)))
        gaussian = GaussianStep(y, (s / scale) ** 2 * spread, axes)
        step: LikelihoodStep
        rhos = (plan.rhos / scale).tolist()
        if plan.method == "split":
            step, start, rho = fastest_split(gaussian, rhos[-1])
            rhos = [rho] * len(rhos)
        else:
            step, start = likelihood_step(plan.likelihood, gaussian, self.likelihood, latents.residual, s, x, scale), y
        how: dict[str, Any] = {"literal": plan.method == "gibbs", "tell": partial(self.tell, len(y))}
        result = split_gibbs(self._denoiser, step, start, rhos, noise, plan.gibbs, plan.n_samples, **how)
        return replace(result, acceptance=step.acceptance if isinstance(step, LangevinStep) else None)

    def _set_prior(self, result: Posterior, empty: Mask, rows: slice) -> None:
        """Set the posterior of empty cells to the prior: mean zero and the variance of the latents."""
        scale = self.prior.latent_scale
        result.mean[empty] = 0
        if result.variance is not None:
            result.variance[empty] = scale**2
        if result.samples is not None:
            origin, noise = self._tensor(result.mean[empty]), self._random(self.seeds[rows][empty])
            drawn = direct(self._denoiser, origin, torch.tensor(torch.inf), noise, n_samples=self.plan.n_samples)
            result.samples[empty] = scale * drawn.samples.cpu().numpy()

    @cached_property
    def _denoiser(self) -> Denoiser:
        return self.prior.denoiser_on(torch_device(self.device))

    def _random(self, seeds: NDArray[np.int64]) -> CellNoise:
        return CellNoise(torch.as_tensor(seeds, device=torch_device(self.device)))

    def _tensor(self, array: NDArray | None) -> Tensor:
        return torch.as_tensor(np.asarray(array, dtype=np.float32), device=torch_device(self.device))
