"""Settings of the posterior: the method and the noise of the likelihood."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dice._arguments import choice, is_number, number, said, whole_number
from dice._errors import InputError

#: Fields use this name in quotes, because help pages show types as they are written.
Noise: TypeAlias = float | Literal["estimate", "per_gene"]


@dataclass(frozen=True)
class Gibbs:
    """Split Gibbs sampling, the paper's Algorithm 1: pass it as ``method=``.

    Parameters
    ----------
    n_chains
        Number of independent chains; at least ``n_samples`` chains are run.
    n_iterations
        Number of iterations of each chain. None is 100 for a pair of rho, 30 for a single rho, and for ``fast=True``
        the number that the noise requires.
    burn_in
        Number of first iterations that are left out of averages. None is a third of all iterations, and for
        ``fast=True`` the number that the noise requires.
    schedule
        Interpolation between the two values of a pair of rho, ``"linear"`` or ``"geometric"``.
    average
        ``"rao-blackwell"`` averages the output of the denoiser along the chains, and ``"chains"`` averages their last
        states.
    fast
        Whether to divide the noise between the two steps such that the chain mixes fastest. The posterior is the same.
        This needs Gaussian noise and a single rho. ``method="auto"`` uses it if the direct method is not exact.
    """

    n_chains: int = 1
    n_iterations: int | None = None
    burn_in: int | None = None
    schedule: Literal["linear", "geometric"] = "linear"
    average: Literal["rao-blackwell", "chains"] = "rao-blackwell"
    fast: bool = False

    def __post_init__(self) -> None:
        whole_number("n_chains", self.n_chains)
        for name, least in (("n_iterations", 1), ("burn_in", 0)):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=least)
        choice("schedule", self.schedule, ("linear", "geometric"))
        choice("average", self.average, ("rao-blackwell", "chains"))


@dataclass(frozen=True)
class Direct:
    """One evaluation of the denoiser per cell, exact for isotropic Gaussian noise: pass it as ``method=``.

    Parameters
    ----------
    uncertainty
        Whether to compute ``adata.obs["dice_uncertainty"]``. Without counts this takes four more evaluations per cell.
    """

    uncertainty: bool = True


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise: pass it as ``likelihood=``.

    Parameters
    ----------
    noise
        Standard deviation of the noise of a scaled gene in the query. ``"estimate"`` measures it from the residuals,
        which are the part of the expression that the loadings do not explain. ``"per_gene"`` also weights the genes by
        their noise in the reference.
    """

    noise: "Noise" = "estimate"

    def __post_init__(self) -> None:
        _check_noise(self.noise)


@dataclass(frozen=True)
class StudentT:
    """Noise with heavy tails: pass it as ``likelihood=``.

    Parameters
    ----------
    df
        Degrees of freedom.
    per_gene
        Whether the noise of every gene has its own heavy tails. Otherwise all genes of a cell share one precision.
    noise
        Scale of the noise: a number, ``"estimate"`` or ``"per_gene"``, as in :class:`Gaussian`.
    """

    df: float = 4.0
    per_gene: bool = False
    noise: "Noise" = "estimate"

    def __post_init__(self) -> None:
        number("df", self.df, least=1)
        _check_noise(self.noise)


def _check_noise(noise: Any) -> None:
    named = isinstance(noise, str) and noise in ("estimate", "per_gene")
    if not named and not (is_number(noise) and noise > 0):
        raise InputError(f"`noise` must be a positive number, 'estimate' or 'per_gene', got {said(noise)}.")
