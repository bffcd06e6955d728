"""From what the expression says and what the prior knows to a posterior: the plan of a call, and one chunk of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._core.posterior.direct import Posterior, direct
from dice._core.posterior.gibbs import GibbsSettings, exact_split, rho_schedule, split_gibbs, split_length, wiener_start
from dice._core.posterior.likelihood import GaussianLikelihood
from dice._core.posterior.memory import Halving
from dice._core.posterior.noise import CellNoise
from dice._core.posterior.steps import (
    GaussianStep,
    LangevinStep,
    LikelihoodStep,
    LogDensity,
    StudentCellStep,
    StudentGeneStep,
)
from dice._core.prior.prior import Prior
from dice._errors import InputError

METHODS = ("auto", "direct", "gibbs")
LIKELIHOODS = ("gaussian", "student_t", "student_t_genes")


@dataclass(frozen=True)
class Plan:
    """Everything that a call decided before it looked at single cells; all in PCA units.

    ``method`` is ``"direct"`` (one evaluation, exact), ``"split"`` (the fastest chain for anisotropic Gaussian noise)
    or ``"gibbs"`` (Algorithm 1 as printed, with `rhos` as its schedule).
    """

    method: str
    likelihood: str | LogDensity
    rhos: NDArray[np.float64]
    gibbs: GibbsSettings = field(default_factory=GibbsSettings)
    df: float = 4.0
    deconvolve: bool = False
    uncertainty: bool = True

    @property
    def rho(self) -> float:
        return float(self.rhos[-1])

    @property
    def needs_genes(self) -> bool:
        """Whether the steps look at single genes, beyond the latent point of a cell."""
        return callable(self.likelihood) or self.likelihood == "student_t_genes"


def choose_method(method: str, likelihood: str | LogDensity, rho: float | Sequence[float], isotropic: bool) -> str:
    """Direct where it is exact; else the fastest chain for Gaussian noise, else Algorithm 1 as it stands."""
    if method not in METHODS:
        raise InputError(f"There is no method {method!r}: choose one of {list(METHODS)}.")
    if not callable(likelihood) and likelihood not in LIKELIHOODS:
        raise InputError(
            f"There is no likelihood {likelihood!r}: choose one of {list(LIKELIHOODS)} or pass a function."
        )
    gaussian, constant = likelihood == "gaussian", np.ndim(rho) == 0
    if method == "gibbs":
        return "gibbs"
    if gaussian and constant:
        if isotropic:
            return "direct"
        if method == "auto":
            return "split"
    if method == "direct":
        raise InputError(
            "method='direct' is exact only for Gaussian noise that is the same for all genes, all of the prior's "
            "genes and a single rho: pass method='auto'."
        )
    return "gibbs"


def make_plan(
    method: str,
    likelihood: str | LogDensity,
    rho: float | Sequence[float],
    gibbs: GibbsSettings,
    *,
    isotropic: bool,
    noise_range: tuple[float, float],
    n_iterations: int | None = None,
    geometric: bool = False,
    df: float = 4.0,
    deconvolve: bool = False,
    uncertainty: bool = True,
) -> Plan:
    """Resolve the arguments of a call.

    ``gibbs.burn_in`` None becomes a third of the iterations, or what the mixing asks for. `noise_range` are the extreme
    noise variances over cells and directions.
    """
    chosen = choose_method(method, likelihood, rho, isotropic)
    if deconvolve and (chosen != "direct" or gibbs.n_samples):
        raise InputError(
            "deconvolve=True gives the mean of the direct method alone, which needs all of the prior's genes, Gaussian "
            "noise, one rho and n_samples=0: pass deconvolve=False."
        )
    if chosen == "gibbs":
        rhos = rho_schedule(rho, n_iterations, geometric=geometric)
        burn_in = len(rhos) // 3
    else:
        constant = float(np.asarray(rho))
        smallest, largest = (value + constant**2 for value in noise_range)
        length, burn_in = split_length(smallest, largest)
        rhos = np.full((n_iterations or length) if chosen == "split" else 1, constant)
    gibbs = gibbs if gibbs.burn_in is not None else replace(gibbs, burn_in=burn_in)
    return Plan(chosen, likelihood, rhos, gibbs, df, deconvolve, uncertainty)


def clip_rho(prior: Prior, rhos: NDArray[np.float64]) -> NDArray[np.float64]:
    """rho within what the denoiser can start its own steps from."""
    largest = prior.denoiser.largest_noise
    return rhos if largest is None else np.minimum(rhos, largest * prior.latent_scale)


@dataclass(frozen=True)
class Observation:
    """What the likelihood needs of a chunk of cells; PCA units.

    ``x`` (n, d) are the standardised observed genes, only where the plan needs them.
    """

    y: NDArray[np.float32]
    #: Noise standard deviation of every cell (n,).
    noise: NDArray[np.float32]
    #: Residual energy per degree of freedom of every cell (n,).
    residual: NDArray[np.float32]
    x: NDArray[np.float32] | None = None

    def take(self, rows: slice) -> Observation:
        """A part of the cells."""
        x = None if self.x is None else self.x[rows]
        return Observation(self.y[rows], self.noise[rows], self.residual[rows], x)


class Inference:
    """The posterior of chunks of cells under one prior, likelihood and plan, on one device."""

    def __init__(self, prior: Prior, likelihood: GaussianLikelihood, plan: Plan, device: torch.device) -> None:
        self.prior = prior
        self.likelihood = likelihood
        self.plan = plan
        self.device = device
        self.denoiser = prior.denoiser_on(device)
        spread, axes = np.linalg.eigh(likelihood.covariance.astype(np.float64))
        self.spread, self.axes = self._tensor(spread), self._tensor(axes)
        #: Share of accepted Langevin moves by chunk, where there were any.
        self.acceptance: list[float] = []
        #: Cuts chunks that do not fit the memory of the device.
        self.halving = Halving()

    def posterior(self, observed: Observation, keys: NDArray[np.int64]) -> Posterior:
        """Posterior of one chunk in PCA units; `keys` address the cells' random numbers."""
        return self.halving(lambda rows: self._posterior(observed.take(rows), keys[rows]), len(keys))

    def _posterior(self, observed: Observation, keys: NDArray[np.int64]) -> Posterior:
        scale = self.prior.latent_scale
        y = self._tensor(observed.y) / scale
        noise = CellNoise(torch.as_tensor(keys, device=self.device))
        result = self._run(y, observed, noise)
        samples = None if result.samples is None else result.samples * scale
        variance = None if result.variance is None else result.variance * scale**2
        return Posterior(result.mean * scale, samples, variance)

    def prior_samples(self, noise: NDArray[np.float32], keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """Samples (n, S, k) of cells that nothing is known of: at a large `noise` level, seen at the origin."""
        plan = replace(self.plan, method="direct", uncertainty=False, deconvolve=False)
        nowhere = np.zeros((len(noise), self.prior.n_latent), dtype=np.float32)
        blank = Inference(self.prior, self.likelihood, plan, self.device)
        result = blank.posterior(Observation(nowhere, noise, np.zeros_like(noise)), keys)
        return np.asarray(torch.as_tensor(result.samples).cpu())

    def _run(self, y: Tensor, observed: Observation, noise: CellNoise) -> Posterior:
        plan, scale = self.plan, self.prior.latent_scale
        s = self._tensor(observed.noise) / scale
        rho = plan.rho / scale
        if plan.method == "direct":
            return direct(
                self.denoiser,
                y,
                _shared(torch.sqrt(s.square() + rho**2)),
                noise,
                n_samples=plan.gibbs.n_samples,
                uncertainty=plan.uncertainty,
                reference_noise=self.prior.noise / scale if plan.deconvolve else None,
            )
        gaussian = GaussianStep(y, s[:, None].square() * self.spread, self.axes)
        if plan.method == "split":
            rest, level = exact_split(gaussian, rho)
            start = wiener_start(gaussian, rho)
            return split_gibbs(self.denoiser, rest, start, [level] * len(plan.rhos), noise, plan.gibbs)
        step = self._likelihood_step(gaussian, observed)
        rhos = [float(value) / scale for value in plan.rhos]
        result = split_gibbs(self.denoiser, step, y, rhos, noise, plan.gibbs, own_steps=True)
        if isinstance(step, LangevinStep) and len(y) and step.moves > step.warm_up:
            self.acceptance.append(float(step.acceptance.mean()))
        return result

    def _likelihood_step(self, gaussian: GaussianStep, observed: Observation) -> LikelihoodStep:
        plan, likelihood = self.plan, self.likelihood
        if plan.likelihood == "gaussian":
            return gaussian
        n_genes = len(likelihood.loadings)
        if plan.likelihood == "student_t":
            energy = observed.residual * likelihood.degrees_of_freedom / observed.noise**2
            return StudentCellStep(gaussian, self._tensor(energy), n_genes, plan.df)
        x = self._tensor(observed.x)
        # In scaled units the loadings carry the scale: V U = (V scale) (U / scale).
        loadings = self._tensor(likelihood.loadings) * self.prior.latent_scale
        if callable(plan.likelihood):
            return LangevinStep(x, loadings, plan.likelihood)
        relative = np.ones(n_genes) if likelihood.weights is None else 1 / likelihood.weights
        return StudentGeneStep(x, loadings, self._tensor(relative * observed.noise[:, None] ** 2), plan.df)

    def _tensor(self, array: NDArray | None) -> Tensor:
        return torch.as_tensor(np.asarray(array, dtype=np.float32), device=self.device)


def _shared(levels: Tensor) -> Tensor:
    """One level () where all cells have the same: its embedding is then computed once, not for every cell."""
    return levels[0] if len(levels) and bool((levels == levels[0]).all()) else levels
