"""Options of label transfer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dice._arguments import choice, number, whole_number
from dice._errors import InputError
from dice.options._posterior import described
from dice.options._query import check_rho

CLASSIFIERS = ("knn", "logistic")
REPRESENTATIONS = ("projection", "denoised", "samples", "genes")


@dataclass(frozen=True)
class Sets:
    """How prediction sets of :func:`dice.tl.transfer_labels` are made.

    Parameters
    ----------
    method
        ``"lac"`` makes the smallest sets; ``"aps"`` spreads its errors more evenly over easy and hard cells;
        ``"raps"`` does so with a penalty for long sets.
    per_class
        Calibrate every label on its own cells: coverage then holds for every label, and whatever the composition of
        the query; sets are larger.
    weighted
        Weigh the calibration cells by how likely they are in the query (a density ratio, estimated on the latents),
        for queries whose states are covered by the reference but in other proportions.
    randomize
        Break the steps of ``"aps"`` and ``"raps"`` by random numbers that belong to the cell, which makes coverage
        exact. Without them coverage is at least what was asked for, and no set is left to chance.
    """

    method: Literal["lac", "aps", "raps"] = described("lac, aps or raps", "lac")
    per_class: bool = described("calibrate every label on its own cells", False)
    weighted: bool = described("weigh calibration cells by their share in the query", False)
    randomize: bool = described("break ties of aps and raps at random", True)

    def __post_init__(self) -> None:
        choice("method", self.method, ("lac", "aps", "raps"))


@dataclass(frozen=True)
class Classifier:
    """What :func:`dice.tl.transfer_labels` classifies cells by.

    Parameters
    ----------
    kind
        ``"knn"`` (15 nearest cells), ``"logistic"`` (multinomial regression), or ``"auto"``: the mixture of all
        candidates that predicts held-out reference cells best.
    representation
        ``"projection"`` (PCA), ``"denoised"`` (posterior mean), ``"samples"`` (probabilities averaged over posterior
        samples), ``"genes"`` (standardised expression, logistic only), or ``"auto"`` for all.
    rho
        As in :func:`dice.tl.denoise`; labels want no more than the measured noise.
    n_samples
        Posterior samples of each cell to average over.
    min_probability
        Cells whose most likely label is less likely than this are ``"unassigned"``; by default all have a label.
    """

    kind: Literal["auto", "knn", "logistic"] = described("auto, knn or logistic", "auto")
    representation: Literal["auto", "projection", "denoised", "samples", "genes"] = described(
        "auto, projection, denoised, samples or genes", "auto"
    )
    rho: float = described("how much the prior may move a cell", 0.0)
    n_samples: int = described("posterior samples to average over", 10)
    min_probability: float = described("less likely labels are unassigned", 0.0)

    def __post_init__(self) -> None:
        choice("classifier", self.kind, ("auto", *CLASSIFIERS))
        choice("representation", self.representation, ("auto", *REPRESENTATIONS))
        if (self.kind, self.representation) == ("knn", "genes"):
            raise InputError("There are no neighbours by genes: pass representation='projection', or kind='logistic'.")
        check_rho(self.rho)
        whole_number("n_samples", self.n_samples)
        number("min_probability", self.min_probability, least=0, most=1)
