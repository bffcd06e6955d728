"""How far the labels of a query are to be trusted: sets that are never empty, and a word for every cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice._core.labels.conformal import p_values
from dice._core.labels.doubt import UNLIKE_RATE, confident_from, in_a_word, never_empty, widened
from dice._core.labels.novelty import Groups, novelty_scores
from dice._query.classification import Represented
from dice._query.reference import Labelled
from dice._types import Floats, Mask


@dataclass(frozen=True)
class Doubt:
    """Sets (n, C) and status (n,) of a query's cells, and the probability from which on a label is confident."""

    sets: Mask
    status: NDArray[np.intp]
    least: float

    @property
    def params(self) -> dict[str, Any]:
        return {"confident_from": self.least, "unlike_rate": UNLIKE_RATE}


def judge(
    sets: Mask,
    alpha: float,
    probabilities: Floats,
    calibration: Floats,
    labelled: Labelled,
    query: Represented,
    reference: Represented,
) -> Doubt:
    """Tell labels that are beyond doubt from those that have rivals, and from cells that the reference lacks."""
    fit, cells = labelled.cells("train", "validation"), labelled.cells("calibration")
    least = confident_from(calibration, labelled.codes[cells], alpha)
    confident, sets = widened(never_empty(sets, probabilities), probabilities, least)
    # By what was measured, without the shift: the posterior maps unseen types onto known ones.
    groups = Groups.of(reference.y[fit], labelled.codes[fit])
    novel, usual = novelty_scores(groups, query.y, reference.y[cells])
    unlike = (p_values(novel, usual) <= UNLIKE_RATE) | query.query.latents.empty
    return Doubt(sets, in_a_word(confident, unlike), least)
