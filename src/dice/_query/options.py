"""The arguments of a denoising call, checked once, whatever the call writes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dice._anndata.write import plain_params
from dice._arguments import choice, number, whole_number
from dice._core.posterior.gibbs import GibbsSettings
from dice._core.posterior.inference import LIKELIHOODS
from dice._core.posterior.steps import LogDensity
from dice._core.shift.record import STRATEGIES
from dice._errors import InputError
from dice._query.arguments import resolve_rho


@dataclass(frozen=True)
class Options:
    """Arguments that decide the posterior, as :func:`dice.tl.denoise` documents them."""

    rho: float | Sequence[float] | str | None = None
    method: str = "auto"
    n_samples: int = 0
    likelihood: str | LogDensity = "gaussian"
    df: float = 4.0
    noise: str | float = "estimate"
    deconvolve: bool = False
    calibrate: str | bool | Mapping[str, Any] = "auto"
    batch_key: str | None = None
    n_chains: int = 1
    n_iterations: int | None = None
    burn_in: int | None = None
    schedule: str = "linear"
    average: str = "rao-blackwell"
    uncertainty: bool = True
    gene_key: str | None = None
    min_gene_overlap: float = 0.2
    layer: str | None = None
    check: bool = True
    chunk_size: int | None = None
    random_state: int = 0

    def __post_init__(self) -> None:
        if not self.tunes_rho:
            resolve_rho(self.rho, 1.0)
        for name, least in (("n_chains", 1), ("n_samples", 0), ("random_state", 0)):
            whole_number(name, getattr(self, name), least=least)
        for name, least in (("n_iterations", 1), ("burn_in", 0), ("chunk_size", 1)):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=least)
        number("df", self.df, least=1)
        choice("schedule", self.schedule, ("linear", "geometric"))
        choice("average", self.average, ("rao-blackwell", "chains"))
        if not isinstance(self.calibrate, Mapping):
            choice("calibrate", self.calibrate, ("auto", *STRATEGIES, False))

    @property
    def tunes_rho(self) -> bool:
        """Whether rho is to be found by a criterion."""
        return isinstance(self.rho, str) and self.rho == "auto"

    @property
    def gibbs(self) -> GibbsSettings:
        return GibbsSettings(
            n_chains=int(self.n_chains),
            burn_in=None if self.burn_in is None else int(self.burn_in),
            rao_blackwell=self.average == "rao-blackwell",
            n_samples=int(self.n_samples),
        )

    @property
    def tail_df(self) -> float | None:
        """Degrees of freedom of the noise, None where its tails are Gaussian or the user's own."""
        return float(self.df) if isinstance(self.likelihood, str) and self.likelihood.startswith("student_t") else None

    @property
    def asked_calibration(self) -> str | bool:
        """The strategy; of an earlier call's calibration the name is enough, as all of it is stored beside."""
        return self.calibrate.get("strategy", "none") if isinstance(self.calibrate, Mapping) else self.calibrate

    def call(self, rho: float | list[float]) -> dict[str, Any]:
        """Every argument that matters to the result, in a form that files can hold."""
        return plain_params(
            rho=rho, method=self.method, likelihood=self.likelihood, df=float(self.df), noise=self.noise,
            deconvolve=self.deconvolve, calibrate=self.asked_calibration, batch_key=self.batch_key,
            n_chains=self.n_chains, n_iterations=self.n_iterations, burn_in=self.burn_in, schedule=self.schedule,
            average=self.average, gene_key=self.gene_key,
            min_gene_overlap=float(self.min_gene_overlap), layer=self.layer, random_state=int(self.random_state),
        )  # fmt: skip


def stored_call(record: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an earlier call from its entry in ``.uns``, as :func:`dice.tl.denoise` takes them."""
    call = dict(record["call"])
    if call["likelihood"] not in LIKELIHOODS:
        raise InputError(
            f"The embedding was made with the function {call['likelihood']!r}, which cannot be stored: call "
            "dice.tl.denoise itself again."
        )
    # Found once for all cells: a part of them would be calibrated differently.
    call["calibrate"] = record.get("calibration", call["calibrate"])
    # So is the noise: that of a part would be another one.
    call["noise"] = record["params"]["noise"] if call["noise"] == "estimate" else call["noise"]
    call["rho"] = call["rho"] if np.ndim(call["rho"]) == 0 else list(call["rho"])
    return call
