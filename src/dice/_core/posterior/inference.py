"""From what the expression says and what the prior knows to the posterior of a chunk of cells."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._core.posterior.direct import Posterior, direct, direct_measured
from dice._core.posterior.gibbs import exact_split, silent, split_gibbs, wiener_start
from dice._core.posterior.likelihood import GaussianLikelihood, Latents
from dice._core.posterior.memory import Halving, OutOfMemory
from dice._core.posterior.noise import CellNoise
from dice._core.posterior.plan import Plan
from dice._core.posterior.steps import GaussianStep, LangevinStep, LikelihoodStep, StudentCellStep, StudentGeneStep
from dice._core.prior.denoiser import Denoiser
from dice._core.prior.prior import LearnedPrior
from dice._core.shift.offsets import Offsets
from dice._errors import InputError
from dice._types import Chunk, Floats, Mask
from dice.options import Gaussian, StudentT, torch_device

#: Assumed noise in latent scales below which there is none: the slope of the prior drowns in rounding.
NO_NOISE = 1e-3


@dataclass(frozen=True)
class Observation:
    """What the likelihood needs of a chunk of cells; PCA units."""

    y: Floats
    #: Noise standard deviation (n,), and residual energy per degree of freedom (n,).
    noise: NDArray[np.float32]
    residual: Floats
    #: Standardised observed genes (n, d), only where the plan needs them.
    x: Floats | None = None
    #: Posterior variances (n, k) of clean latents whose mean is y, where they were measured.
    measured: Floats | None = None

    def __getitem__(self, rows: slice) -> Observation:
        parts = {name: None if part is None else part[rows] for name, part in vars(self).items()}
        return Observation(**parts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Inference:
    """The posterior of any chunk of cells: all that a worker needs, addressed by the cells' positions."""

    prior: LearnedPrior
    likelihood: GaussianLikelihood
    plan: Plan
    #: Noise (n,), as it is after the shift, and cell seeds (n,) of all cells.
    noise: NDArray[np.float32]
    seeds: NDArray[np.int64]
    #: Resolved where the work is done: a worker may have a GPU that the caller lacks.
    device: str
    #: What separates the query from the reference.
    offsets: Offsets | None = None
    #: Cells (n,) that the loadings were computed from.
    own: Mask | None = None
    #: Log depth (n,) of all cells where a layer of counts tells it.
    log_depth: NDArray[np.float32] | None = None
    #: Called with the number of cells that took a step; see `Plan.n_steps`.
    tell: Callable[[int], object] = silent

    def __call__(self, latents: Latents, rows: slice, chunk: Chunk | None = None) -> Posterior:
        """Posterior of the cells at positions `rows` as arrays in PCA units; `chunk` where single genes matter."""
        x = self.likelihood.standardizer(chunk).dense() if self.plan.needs_genes else None
        y, residual, noise, seeds = latents.y, latents.residual, self.noise[rows], self.seeds[rows]
        y, measured = self.measured(latents, rows) if self.plan.method == "measured" else (y, None)
        if self.offsets is not None:
            # What separates a query lies in the span of the loadings; what these leave unexplained stays as it is.
            away = self.offsets.of(y, rows)
            y, x = y - away, None if x is None else x - away @ self.likelihood.loadings.T
        observed = Observation(y, noise, residual, x, measured)
        found = self._fitting(observed, seeds)
        if self.plan.n_steps == 1:
            self.tell(len(y))
        result = found.map(lambda part, power: part.cpu().numpy())
        if latents.empty.any():
            self._set_prior(result, latents.empty, noise, seeds)
        for part in (result.mean, result.variance):
            if part is not None and not np.isfinite(part).all():
                raise InputError(
                    f"The posterior is not finite with noise {noise.max():.3g} and rho {self.plan.rhos.max():.3g}: "
                    "pass values of the latents' own size."
                )
        return result

    def measured(self, latents: Latents, rows: slice) -> tuple[Floats, Floats]:
        """Posterior mean and variance (n, k) of the clean latents, honest for cells of the reference."""
        y = latents.y
        if self.own is not None and self.likelihood.complete:
            y = self.likelihood.honest(latents, self.own[rows], self.prior.projection)
        network = self._torch.measurement
        # Empty cells have no depth and get the prior; the few that are no counts have the typical one.
        depth = np.where(np.isnan(latents.log_depth), float(network.typical), latents.log_depth)
        with torch.inference_mode():
            mean, variance = network(self._torch(y), self._torch(depth))
            if self.likelihood.completion is not None:
                variance = variance + self._torch(self.likelihood.completion.added) * network.slope.square()
        return mean.cpu().numpy(), variance.cpu().numpy()

    def _read(self, chunk: Chunk, rows: slice) -> Latents:
        latents = self.likelihood.latents(chunk)
        return latents if self.log_depth is None else replace(latents, log_depth=self.log_depth[rows])

    def packed(self, chunk: Chunk, rows: slice) -> NDArray[np.float32]:
        """One block of a lazy array, from expression to mean and samples side by side (n, k + S k)."""
        result = self(self._read(chunk, rows), rows, chunk)
        if result.samples is None:
            return result.mean
        n, drawn, k = result.samples.shape
        return np.hstack([result.mean, result.samples.reshape(n, drawn * k)])

    def variance(self, chunk: Chunk, rows: slice) -> NDArray[np.float32]:
        """Posterior variance per latent (n,) of a block of expression."""
        return np.asarray(self(self._read(chunk, rows), rows, chunk).variance)

    def _fitting(self, observed: Observation, seeds: NDArray[np.int64]) -> Posterior:
        """The posterior at once, or in parts once a chunk did not fit the memory of the device."""
        if self.limit is None:
            try:
                return self._posterior(observed, seeds)
            except OutOfMemory:
                pass  # Tried again in parts, where the error no longer holds on to its tensors.
        return self.halving(lambda part: self._posterior(observed[part], seeds[part]), len(seeds))

    @property
    def limit(self) -> int | None:
        """Cells that fit the memory of the device; None as long as everything did."""
        return self.halving.limit if "halving" in vars(self) else None

    @cached_property
    def halving(self) -> Halving:
        """Cuts chunks that do not fit the memory of the device."""
        return Halving()

    def _posterior(self, observed: Observation, seeds: NDArray[np.int64]) -> Posterior:
        scale = self.prior.latent_scale
        noise = CellNoise(torch.as_tensor(seeds, device=self._torch.device))
        result = self._run(self._torch(observed.y) / scale, observed, noise)
        if not self.plan.uncertainty:
            result = replace(result, variance=None)
        return result.map(lambda part, power: part * scale**power)

    def _set_prior(
        self, result: Posterior, empty: NDArray[np.bool_], noise: NDArray[np.float32], seeds: NDArray[np.int64]
    ) -> None:
        """Of empty cells the posterior is the prior: latents are centred, and scaled by the root of their variance."""
        result.mean[empty] = 0
        if result.variance is not None:
            result.variance[empty] = self.prior.latent_scale**2
        if result.samples is not None:
            nowhere = np.zeros((int(empty.sum()), self.prior.n_latent), dtype=np.float32)
            observed = Observation(nowhere, noise[empty], np.zeros(len(nowhere), dtype=np.float32))
            plan = replace(self.plan, method="direct", uncertainty=False, deconvolve=False)
            drawn = replace(self, plan=plan)._posterior(observed, seeds[empty])
            result.samples[empty] = drawn.samples.cpu().numpy()

    def _run(self, y: Tensor, observed: Observation, noise: CellNoise) -> Posterior:
        plan, scale = self.plan, self.prior.latent_scale
        s, rho = self._torch(observed.noise) / scale, plan.rho / scale
        if observed.measured is not None:
            variance = self._torch(observed.measured) / scale**2
            denoiser = self._torch.denoiser if rho > NO_NOISE else None
            return direct_measured(denoiser, y, variance, rho, noise, plan.n_samples, uncertainty=plan.uncertainty)
        denoiser = self._torch.denoiser
        if plan.method == "direct":
            return direct(
                denoiser,
                y,
                _shared(torch.sqrt(s.square() + rho**2)),
                noise,
                n_samples=plan.n_samples,
                uncertainty=plan.uncertainty,
                reference_noise=self.prior.noise / scale if plan.deconvolve else None,
            )
        gaussian = GaussianStep(y, s[:, None].square() * self._torch.spread, self._torch.axes)
        told: dict[str, Any] = {"n_samples": plan.n_samples, "tell": partial(self.tell, len(y))}
        if plan.method == "split":
            rest, level = exact_split(gaussian, rho)
            start, rhos = wiener_start(gaussian, rho), [level] * len(plan.rhos)
            return split_gibbs(denoiser, rest, start, rhos, noise, plan.gibbs, **told)
        step = self._likelihood_step(gaussian, observed)
        chain = [float(value) / scale for value in plan.rhos]
        result = split_gibbs(denoiser, step, y, chain, noise, plan.gibbs, literal=True, **told)
        if isinstance(step, LangevinStep) and len(y) and step.moves > step.warm_up:
            result = replace(result, acceptance=float(step.acceptance.mean()))
        return result

    def _likelihood_step(self, gaussian: GaussianStep, observed: Observation) -> LikelihoodStep:
        kind, likelihood, tensor = self.plan.likelihood, self.likelihood, self._torch
        if isinstance(kind, Gaussian):
            return gaussian
        n_genes = len(likelihood.loadings)
        if isinstance(kind, StudentT) and not kind.per_gene:
            energy = observed.residual * likelihood.degrees_of_freedom / observed.noise**2
            return StudentCellStep(gaussian, tensor(energy), n_genes, kind.df)
        # In scaled units the loadings carry the scale: V U = (V scale) (U / scale).
        x, loadings = tensor(observed.x), tensor(likelihood.loadings) * self.prior.latent_scale
        if not isinstance(kind, StudentT):
            return LangevinStep(x, loadings, kind)
        relative = np.ones(n_genes) if likelihood.weights is None else 1 / likelihood.weights
        return StudentGeneStep(x, loadings, tensor(relative * observed.noise[:, None] ** 2), kind.df)

    @cached_property
    def _torch(self) -> _OnDevice:
        return _OnDevice(self.prior, self.likelihood, torch_device(self.device))


class _OnDevice:
    """The network, and the axes of the noise, where the work is done."""

    def __init__(self, prior: LearnedPrior, likelihood: GaussianLikelihood, device: torch.device) -> None:
        self.device, self._prior = device, prior
        self.measurement: Any = None if prior.measurement is None else deepcopy(prior.measurement).to(device)
        spread, axes = np.linalg.eigh(likelihood.covariance.astype(np.float64))
        self.spread, self.axes = self(spread), self(axes)

    @cached_property
    def denoiser(self) -> Denoiser:
        return self._prior.denoiser_on(self.device)

    def __call__(self, array: NDArray | None) -> Tensor:
        return torch.as_tensor(np.asarray(array, dtype=np.float32), device=self.device)


def _shared(levels: Tensor) -> Tensor:
    """One level () where all cells have the same: its embedding is then computed once, not for every cell."""
    return levels[0] if len(levels) and bool((levels == levels[0]).all()) else levels
