"""Decisions of a call before single cells are computed: method, noise, rho and shift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dice._errors import InputError
from dice._model.gibbs import rho_schedule, split_length
from dice._model.offsets import Offsets
from dice._model.prior import LearnedPrior
from dice.options import Gaussian, Gibbs, LogDensity, Options, StudentT

Method: TypeAlias = Literal["direct", "split", "gibbs"]
#: The likelihood of "auto" if noise was not measured.
GAUSSIAN = Gaussian()


@dataclass(frozen=True)
class Plan:
    """Method and settings of a call; PCA units.

    ``method`` is ``"direct"`` (one evaluation of the denoiser), ``"split"`` (the fastest chain for anisotropic Gaussian
    noise) or ``"gibbs"`` (Algorithm 1 as printed, with `rhos` as its schedule).
    """

    method: Method
    likelihood: Gaussian | StudentT | LogDensity
    rhos: NDArray[np.float64]
    gibbs: Gibbs
    n_samples: int
    deconvolve: bool
    uncertainty: bool
    #: Whether the noise is that of counts, given by the depth of a cell; otherwise it is Gaussian.
    measured: bool = False
    #: Whether rho was larger than the largest level of the network's noise schedule.
    clipped: bool = False

    @property
    def rho(self) -> float:
        return float(self.rhos[-1])

    @property
    def n_steps(self) -> int:
        """Steps that every cell takes: iterations of all chains, or one."""
        chained = self.method in ("split", "gibbs")
        return max(self.gibbs.n_chains, self.n_samples) * len(self.rhos) if chained else 1

    @property
    def needs_genes(self) -> bool:
        """Whether the steps need single genes, beyond the latents of a cell."""
        return callable(self.likelihood) or (isinstance(self.likelihood, StudentT) and self.likelihood.per_gene)

    @classmethod
    def of(
        cls,
        options: Options,
        rho: float | Sequence[float],
        *,
        isotropic: bool,
        noise_range: tuple[float, float],
        noise: float,
        prior: LearnedPrior,
        measured: bool,
    ) -> Plan:
        """The plan for given options.

        A ``burn_in`` of None becomes a third of the iterations, or follows from the mixing. `noise_range` are the
        smallest and largest noise variance over cells and directions, `noise` is the noise of the data set,
        and `measured` tells whether it was learned from counts.
        """
        method: Method = "direct" if measured else _method(options, rho, isotropic=isotropic)
        gibbs, settings = options.gibbs, options.direct
        if settings.deconvolve and (method != "direct" or measured or options.n_samples):
            raise InputError(
                "deconvolve=True gives the mean of the direct method alone, which needs all of the prior's genes, "
                "Gaussian noise, one rho and n_samples=0: pass method='auto'."
            )
        if method == "direct":
            rhos = np.full(1, float(np.asarray(rho)))
        elif method == "gibbs":
            rhos = rho_schedule(rho, gibbs.n_iterations, geometric=gibbs.schedule == "geometric")
            gibbs = gibbs if gibbs.burn_in is not None else replace(gibbs, burn_in=len(rhos) // 3)
        else:
            constant = float(np.asarray(rho))
            length, burn_in = split_length(*(value + constant**2 for value in noise_range))
            rhos = np.full(gibbs.n_iterations or length, constant)
            gibbs = gibbs if gibbs.burn_in is not None else replace(gibbs, burn_in=burn_in)
        if settings.deconvolve:
            _check_deconvolution(float(np.hypot(noise, rhos[-1])), prior.projection.noise)
        largest = prior.denoiser.largest_noise
        most = np.inf if largest is None else largest * prior.latent_scale
        uncertainty = options.uncertainty and settings.uncertainty
        return cls(
            method,
            GAUSSIAN if isinstance(options.likelihood, str) else options.likelihood,
            np.minimum(rhos, most),
            gibbs,
            options.n_samples,
            settings.deconvolve,
            uncertainty,
            measured,
            clipped=bool(rhos.max() > most),
        )


def _check_deconvolution(noise: float, reference_noise: float) -> None:
    """Deconvolution removes the reference's noise from the query's, which must be larger."""
    if noise <= reference_noise:
        raise InputError(
            f"deconvolve=True needs more noise than the reference's own ({reference_noise:.3g}), but noise and rho "
            f"make {noise:.3g}: pass rho={1.05 * reference_noise:.3g} or more."
        )


def _method(options: Options, rho: float | Sequence[float], *, isotropic: bool) -> Literal["direct", "split", "gibbs"]:
    """Direct if it is exact, else the fastest chain for Gaussian noise, else Algorithm 1."""
    gaussian = isinstance(options.likelihood, str | Gaussian) and np.ndim(rho) == 0
    if isinstance(options.method, Gibbs):
        if options.method.fast and not gaussian:
            raise InputError("Gibbs(fast=True) is for Gaussian noise and a single rho: pass dice.Gibbs().")
        return "split" if options.method.fast else "gibbs"
    if gaussian and isotropic:
        return "direct"
    if options.method == "auto":
        return "split" if gaussian else "gibbs"
    raise InputError(
        "method='direct' is exact only for Gaussian noise that is the same for all genes, all of the prior's genes and "
        "a single rho: pass method='auto'."
    )


@dataclass(frozen=True)
class Decided:
    """The plan, the noise and the shift of a call."""

    plan: Plan
    #: Noise of the data set, and of every cell (n,).
    noise: float
    cell_noise: NDArray[np.float32]
    #: The shift of the query, and its record in ``.uns``.
    offsets: Offsets | None
    shift: dict[str, Any]
