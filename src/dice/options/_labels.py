"""Options of label transfer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dice._arguments import choice, number
from dice.options._posterior import described

_REPRESENTATIONS = ("projection", "denoised", "genes")


@dataclass(frozen=True)
class Sets:
    """How prediction sets of :func:`dice.tl.transfer_labels` are made where the query is like the reference.

    If the query differs as a whole, its views make the sets, and these settings do not count.

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
    """What :func:`dice.tl.transfer_labels` classifies cells by: multinomial logistic regression.

    Parameters
    ----------
    representation
        ``"projection"`` (PCA), ``"denoised"`` (posterior mean), ``"genes"`` (standardised expression), or ``"auto"``:
        the mixture of all three that predicts held-out reference cells best, once they are made like the query.
    min_probability
        Cells whose most likely label is less likely than this are ``"unassigned"``; by default all have a label.
    """

    representation: Literal["auto", "projection", "denoised", "genes"] = described(
        "auto, projection, denoised or genes", "auto"
    )
    min_probability: float = described("less likely labels are unassigned", 0.0)

    def __post_init__(self) -> None:
        choice("classifier", self.representation, ("auto", *_REPRESENTATIONS))
        number("min_probability", self.min_probability, least=0, most=1)
