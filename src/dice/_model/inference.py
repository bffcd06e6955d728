"""The posterior of a chunk of cells, from its latents or expression and the prior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._errors import InputError
from dice._model.denoiser import Denoiser
from dice._model.gibbs import exact_split, silent, split_gibbs, wiener_start
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.offsets import Offsets
from dice._model.plan import Plan
from dice._model.posterior import Halving, Posterior, direct
from dice._model.prior import LearnedPrior
from dice._model.random_numbers import CellNoise
from dice._model.steps import GaussianStep, LangevinStep, LikelihoodStep, StudentCellStep, StudentGeneStep
from dice._types import Chunk, Floats, Mask
from dice.options import Gaussian, StudentT, torch_device


@dataclass(frozen=True)
class Observation:
    """Data of a chunk of cells for the likelihood; PCA units."""

    y: Floats
    #: Noise standard deviation (n,), and residual energy per degree of freedom (n,).
    noise: NDArray[np.float32]
    residual: Floats
    #: Standardised observed genes (n, d), if the plan needs them.
    x: Floats | None = None
    #: Log depth (n,), if the noise is that of counts.
    log_depth: NDArray[np.float32] | None = None

    def __getitem__(self, rows: slice) -> Observation:
        parts = {name: None if part is None else part[rows] for name, part in vars(self).items()}
        return Observation(**parts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Inference:
    """Computes the posterior of any chunk of cells; a worker needs nothing else."""

    prior: LearnedPrior
    likelihood: GaussianLikelihood
    plan: Plan
    #: Noise (n,) and cell seeds (n,) of all cells.
    noise: NDArray[np.float32]
    seeds: NDArray[np.int64]
    #: Name of the device, resolved by the worker, which may have a GPU that the caller lacks.
    device: str
    #: The shift of the query.
    offsets: Offsets | None = None
    #: Cells (n,) that the loadings were computed from.
    own: Mask | None = None
    #: Log depth (n,) of all cells, if it comes from a layer of counts.
    log_depth: NDArray[np.float32] | None = None
    #: Called with the number of cells after each step; see `Plan.n_steps`.
    tell: Callable[[int], object] = silent

    def __call__(self, latents: Latents, rows: slice, chunk: Chunk | None = None) -> Posterior:
        """Posterior of the cells at positions `rows` as arrays in PCA units; `chunk` if the plan needs genes."""
        x = self.likelihood.standardizer(chunk).dense() if self.plan.needs_genes else None
        y, residual, noise, seeds = latents.y, latents.residual, self.noise[rows], self.seeds[rows]
        measured, depth = self.plan.measured, None
        if measured:
            # Empty cells have no depth and get the prior. Cells that are not counts get the typical depth.
            y, depth = self._honest(latents, rows), self.prior.known_depth(latents.log_depth)
        elif self.offsets is not None:
            # The shift lies in the span of the loadings. The residual does not change.
            away = self.offsets.of(y, rows)
            y, x = y - away, None if x is None else x - away @ self.likelihood.loadings.T
        found = self._fitting(Observation(y, noise, residual, x, depth), seeds)
        if self.plan.n_steps == 1:
            self.tell(len(y))
        result = found.map(lambda part, power: part.cpu().numpy())
        if measured and self.offsets is not None:
            # Depth describes the cell as measured, so that the shift is removed from the clean latents.
            away = self.offsets.of(result.mean, rows)
            samples = None if result.samples is None else result.samples - away[:, None]
            result = replace(result, mean=result.mean - away, samples=samples)
        if latents.empty.any():
            self._set_prior(result, latents.empty, noise, seeds)
        for part in (result.mean, result.variance):
            if part is not None and not np.isfinite(part).all():
                raise InputError(
                    f"The posterior is not finite with noise {noise.max():.3g} and rho {self.plan.rhos.max():.3g}: "
                    "pass values of the latents' own size."
                )
        return result

    def _honest(self, latents: Latents, rows: slice) -> Floats:
        """Latents (n, k); those of the reference's own cells as if the loadings had been computed without them."""
        if self.own is None or not self.likelihood.complete:
            return latents.y
        return self.likelihood.honest(latents, self.own[rows], self.prior.projection)

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
        """The posterior of all cells at once, or in parts if the memory of the device is too small."""
        return self.halving(lambda part: self._posterior(observed[part], seeds[part]), len(seeds))

    @property
    def limit(self) -> int | None:
        """Largest number of cells that fitted the memory of the device; None if everything fitted."""
        return self.halving.limit

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
        """Set the posterior of empty cells to the prior: mean zero and the variance of the latents."""
        result.mean[empty] = 0
        if result.variance is not None:
            result.variance[empty] = self.prior.latent_scale**2
        if result.samples is not None:
            nowhere = np.zeros((int(empty.sum()), self.prior.n_latent), dtype=np.float32)
            observed = Observation(nowhere, noise[empty], np.zeros(len(nowhere), dtype=np.float32))
            plan = replace(self.plan, method="direct", measured=False, uncertainty=False, deconvolve=False)
            drawn = replace(self, plan=plan)._posterior(observed, seeds[empty])
            result.samples[empty] = drawn.samples.cpu().numpy()

    def _run(self, y: Tensor, observed: Observation, noise: CellNoise) -> Posterior:
        plan, scale = self.plan, self.prior.latent_scale
        s, rho = self._torch(observed.noise) / scale, plan.rho / scale
        denoiser = self._torch.denoiser
        if plan.method == "direct":
            counted = observed.log_depth is not None
            result = direct(
                denoiser,
                y,
                torch.tensor(rho, device=y.device) if counted else _shared(torch.sqrt(s.square() + rho**2)),
                noise,
                log_depth=self._torch(observed.log_depth) if counted else None,
                n_samples=plan.n_samples,
                uncertainty=plan.uncertainty,
                reference_noise=self.prior.noise / scale if plan.deconvolve else None,
            )
            return self._with_missing(result) if counted else result
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

    def _with_missing(self, result: Posterior) -> Posterior:
        """Add the variance of filled-in genes, multiplied by the squared slope of the filter."""
        if result.variance is None or self.likelihood.completion is None:
            return result
        added = self.likelihood.completion.added / self.prior.latent_scale**2
        let_through = float((self._torch(added) * self._torch.denoiser.slope.to(self._torch.device).square()).mean())
        return replace(result, variance=result.variance + let_through)

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
    """The network and the axes of the noise on the device."""

    def __init__(self, prior: LearnedPrior, likelihood: GaussianLikelihood, device: torch.device) -> None:
        self.device, self._prior = device, prior
        spread, axes = np.linalg.eigh(likelihood.covariance.astype(np.float64))
        self.spread, self.axes = self(spread), self(axes)

    @cached_property
    def denoiser(self) -> Denoiser:
        return self._prior.denoiser_on(self.device)

    def __call__(self, array: NDArray | None) -> Tensor:
        return torch.as_tensor(np.asarray(array, dtype=np.float32), device=self.device)


def _shared(levels: Tensor) -> Tensor:
    """One level () if all cells have the same, so that its embedding is computed once."""
    return levels[0] if len(levels) and bool((levels == levels[0]).all()) else levels
