"""How far the labels of a query are to be trusted: a word for every cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice._core.labels.conformal import p_values
from dice._core.labels.doubt import UNLIKE_RATE, confident_from, in_a_word, widened
from dice._core.labels.model import LabelModel
from dice._core.labels.novelty import novelty_scores
from dice._query.classification import Classified
from dice._query.represented import Represented
from dice._query.sets import DomainShift, Predicted
from dice._types import Mask


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
    predicted: Predicted,
    alpha: float,
    found: Classified,
    model: LabelModel,
    shift: DomainShift,
    query: Represented,
    min_probability: float,
) -> Doubt:
    """Tell labels that are beyond doubt from those that have rivals, and from cells that the reference lacks.

    Nobody can be confident of a label that is not given, because it is less likely than `min_probability`.
    """
    codes = model.calibration_codes
    # Cells that the classifiers were weighed by serve as well: three weights know hardly anything of them.
    least = max(confident_from(found.cells(alike=shift.doubtful), found.codes, alpha), min_probability)
    confident, sets = widened(predicted.sets, found.probabilities, least)
    # By what was measured, without the shift: the posterior maps unseen types onto known ones.
    usual = model.calibration_y + found.moved[codes] if shift.doubtful else model.calibration_y
    novel, known = novelty_scores(model.groups(query.query.prior.latent_scale), query.y, usual)
    unlike = (p_values(novel, known) <= UNLIKE_RATE) | ~query.seen
    return Doubt(sets, in_a_word(confident, unlike), least)
