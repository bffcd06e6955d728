"""Prediction sets and status of labels, and the error to expect.

If the query is like the reference, the error is known from calibration cells (:mod:`dice._labels.conformal`). Under a
shift, it is estimated from the averaged probabilities of the views, which are flat where views disagree. Labels are
then wrong more often than these probabilities say (docs/labels.md). Batches of the reference can raise this factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dice import _log
from dice._labels import conformal
from dice._labels.cells import LabelCells
from dice._labels.classification import Classified
from dice._labels.model import LabelModel
from dice._labels.novel_cells import UNLIKE_RATE
from dice._model.arrays import softmax
from dice._model.random_numbers import CellNoise
from dice._query.shift import DomainShift
from dice._types import Codes, Floats, Mask
from dice.options import Sets

#: An unreachable probability threshold, and the threshold above which a label is more likely than all others together.
NEVER, LIKELY = 1.01, 0.5
#: Random stream of the sets.
SETS = 3
#: Wrong labels per expected wrong label under a shift, and the largest value of this ratio.
ERROR_RATIO, MOST_RATIO = 1.4, 2.5
#: The same for panels, whose views share few genes: eight panels outside the benchmark needed 0.6 to 1.7.
PANEL_RATIO = 1.7
#: Pseudo-count of expected errors that pulls the ratio between batches towards 1.
RATIO_ERRORS = 20.0
#: Error rate assumed for small queries, and its weight in cells. Fewer cells must never give more confidence.
CAUTIOUS_ERROR, CAUTIOUS_CELLS = 0.3, 50.0
#: Largest error to expect.
MOST_ERROR = 0.9


@dataclass(frozen=True)
class JudgedLabels:
    """Probabilities (n, C) adjusted for the shift, sets (n, C), and status (n,) of query cells."""

    probabilities: Floats
    sets: Mask
    status: NDArray[np.intp]
    params: dict[str, Any]


def judge(
    settings: Sets, alpha: float, found: Classified, model: LabelModel, shift: DomainShift, cells: LabelCells,
    unlike: Mask, min_probability: float,
) -> JudgedLabels:  # fmt: skip
    """Return the prediction set and the status of every cell.

    Cells that are `unlike` the reference (n,), and labels less likely than `min_probability`, are never confident.
    """
    calibration, codes, seen = model.calibration(found.weights), model.calibration_codes, cells.seen
    ratio = error_ratio(model.batch_evidence, PANEL_RATIO if cells.is_panel else ERROR_RATIO)
    error = expected_error(found.probabilities[seen], ratio, found.strength)
    probabilities = found.probabilities.copy()
    probabilities[seen] = tempered(probabilities[seen], error) if seen.any() else probabilities[seen]
    threshold = conformal.set_threshold(probabilities[seen], alpha) if seen.any() else 0.0
    ranks = _p_values(settings, found, calibration, codes, shift, cells)
    # Sets per class and weighted sets are conformal under any shift.
    strength = 0.0 if settings.per_class or settings.weighted else found.strength
    sets = conformal.joint_sets(ranks, probabilities, alpha, strength, threshold)
    sets = conformal.with_most_likely(sets, probabilities)
    # With too few calibration cells the threshold cannot be reached. Under a shift calibration cells do not apply: a
    # confident label must then be more likely than all others together.
    calibrated = min(conformal.confident_from(calibration, codes, alpha), NEVER)
    least = max((1 - found.strength) * calibrated + found.strength * LIKELY, min_probability)
    confident, sets = conformal.widened(sets, probabilities, least)
    expected = float((probabilities * sets)[seen].sum(1).mean()) if strength and seen.any() else 1 - alpha
    params = {
        "shift_strength": found.strength, "error_ratio": ratio, "expected_error": error, "expected_coverage": expected,
        "confident_from": least, "unlike_rate": UNLIKE_RATE,
    }  # fmt: skip
    _warn(settings, alpha, model, shift, sets, error, strength)
    return JudgedLabels(probabilities, sets, conformal.status_codes(confident, unlike | ~seen), params)


def _p_values(
    settings: Sets, found: Classified, calibration: Floats, codes: Codes, shift: DomainShift, cells: LabelCells
) -> Floats:
    """Return conformal p-values (n, C) of every label, for cells as measured."""
    uniform: list[Floats | None] = [None, None]
    if settings.randomize and settings.method != "lac":
        uniform = [_uniform(cells.query.seeds), _uniform(np.arange(len(codes)))]
    pairs = zip((found.measured, calibration), uniform, strict=True)
    scores, known = (conformal.label_scores(p, settings.method, u) for p, u in pairs)
    weights = {"weights": shift.reference, "own_weights": shift.query} if settings.weighted else {}
    return conformal.label_p_values(scores, known, codes, per_class=settings.per_class, **weights)


def _warn(
    settings: Sets, alpha: float, model: LabelModel, shift: DomainShift, sets: Mask, error: float, strength: float
) -> None:
    """Warn if there are too few calibration cells for conformal sets, or if the query is shifted."""
    codes = model.calibration_codes
    rare = conformal.too_few(codes, len(model.names), alpha)
    if strength < 1 and settings.per_class and rare.any():
        names = [model.names[i] for i in np.flatnonzero(rare)]
        _log.warn(
            f"{len(names)} labels have fewer than {int(np.ceil(1 / alpha)) - 1} calibration cells and are in every "
            f"set, for example {names[:3]}: train with a larger calibration_fraction, or pass per_class=False."
        )
    elif strength < 1 and len(codes) + 1 < 1 / alpha:
        _log.warn(
            f"{len(codes)} calibration cells are too few for alpha={alpha:g}, so every set holds every label: "
            f"pass a larger alpha, or train the prior with at least {int(np.ceil(1 / alpha)) - 1} cells for "
            "calibration (dice.Training(calibration_fraction=))."
        )
    if settings.weighted and shift.effective < 3 / alpha:
        _log.warn(
            f"The weights leave {shift.effective:.0f} effective calibration cells of {len(codes)}, too few for sets at "
            f"alpha={alpha:g}: pass a larger alpha or weighted=False."
        )
    elif not settings.weighted and shift.doubtful:
        _log.warn(
            f"The query differs from its reference (AUC {shift.auc:.2f}): about {error:.0%} of the labels may be "
            f"wrong, and sets hold {sets.sum(1).mean():.1f} labels on average. Check cells whose label you know with "
            "dice.tl.evaluate(..., protocol='labels')."
        )


def _uniform(seeds: NDArray[np.int64]) -> Floats:
    """Return one uniform random number (n,) per cell, which depends only on its seed."""
    return CellNoise(torch.as_tensor(seeds), SETS).uniform(0, 1)[:, 0].numpy().astype(np.float64)


def error_ratio(evidence: Floats, least: float = ERROR_RATIO) -> float:
    """Return the number of wrong labels per expected wrong label under a shift, at least `least`.

    `evidence` (2,) holds the wrong and the expected wrong labels between batches of the reference. Batches differ less
    from each other than from a query of another technology, so the evidence can raise the ratio but never lower it.
    """
    wrong, expected = map(float, evidence)
    among_batches = (wrong + RATIO_ERRORS) / (expected + RATIO_ERRORS)
    return float(min(least * max(among_batches, 1.0), MOST_RATIO))


def expected_error(probabilities: Floats, ratio: float, strength: float) -> float:
    """Return the expected share of wrong labels of cells with these probabilities (n, C).

    Parameters
    ----------
    probabilities
        Probabilities averaged over views.
    ratio
        Wrong labels per expected wrong label under a shift.
    strength
        Strength of the shift, from 0 to 1.
    """
    n = len(probabilities)
    if not n:
        return 0.0
    plain = float(1 - probabilities.max(1).mean())
    error = plain * (1 + strength * (ratio - 1))
    cautious = max(error, CAUTIOUS_ERROR)
    weight = strength * CAUTIOUS_CELLS / (n + CAUTIOUS_CELLS)
    return float(min((1 - weight) * error + weight * cautious, MOST_ERROR))


def tempered(probabilities: Floats, error: float) -> Floats:
    """Return probabilities (n, C) flattened by a common power until they imply the expected error."""
    logs = np.log(np.maximum(probabilities, 1e-12))
    low, high = 1.0, 50.0
    if 1 - softmax(logs).max(1, initial=0).mean() >= error - 1e-12:
        return probabilities
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if 1 - softmax(logs / middle).max(1).mean() < error else (low, middle)
    return softmax(logs / high)
