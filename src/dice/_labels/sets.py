"""Prediction sets and status of labels, from calibration cells or, under a shift, from the views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dice import _log
from dice._labels import doubt
from dice._labels.cells import LabelCells
from dice._labels.classification import Classified
from dice._labels.conformal import label_p_values, label_scores, too_few
from dice._labels.model import LabelModel
from dice._model.random_numbers import CellNoise
from dice._query.shift import DomainShift
from dice._types import Floats, Mask
from dice.options import Sets

#: An unreachable probability threshold, and the threshold above which a label is more likely than all others together.
NEVER, LIKELY = 1.01, 0.5
#: Random stream of the sets.
SETS = 3


@dataclass(frozen=True)
class JudgedLabels:
    """Probabilities (n, C) adjusted for the shift, sets (n, C), and status (n,) of query cells."""

    probabilities: Floats
    sets: Mask
    status: NDArray[np.intp]
    params: dict[str, Any]


def judge(
    settings: Sets,
    alpha: float,
    found: Classified,
    model: LabelModel,
    shift: DomainShift,
    cells: LabelCells,
    unlike: Mask,
    min_probability: float,
) -> JudgedLabels:
    """Return the prediction set and the status of every cell.

    Cells that are `unlike` the reference (n,), and labels less likely than `min_probability`, are never confident.
    """
    calibration, codes, seen = model.calibration(_names(found)), model.calibration_codes, cells.seen
    ratio = doubt.error_ratio(model.batch_evidence)
    error = doubt.expected_error(found.probabilities[seen], ratio, found.strength)
    probabilities = found.probabilities.copy()
    probabilities[seen] = doubt.tempered(probabilities[seen], error) if seen.any() else probabilities[seen]
    threshold = doubt.set_threshold(probabilities[seen], alpha) if seen.any() else 0.0
    ranks = _p_values(settings, found, calibration, codes, shift, cells)
    # Whoever asks for sets per class, or with weights, gets conformal ones under any shift.
    strength = 0.0 if settings.per_class or settings.weighted else found.strength
    sets = doubt.joint_sets(ranks, probabilities, alpha, strength, threshold)
    sets = doubt.with_most_likely(sets, probabilities)
    # With too few calibration cells the threshold cannot be reached. Under a shift calibration cells do not apply: a
    # confident label must then be more likely than all others together.
    calibrated = min(doubt.confident_from(calibration, codes, alpha), NEVER)
    least = max((1 - found.strength) * calibrated + found.strength * LIKELY, min_probability)
    confident, sets = doubt.widened(sets, probabilities, least)
    expected = float((probabilities * sets)[seen].sum(1).mean()) if strength and seen.any() else 1 - alpha
    params = {
        "shift_strength": found.strength, "error_ratio": ratio, "expected_error": error, "expected_coverage": expected,
        "confident_from": least, "unlike_rate": doubt.UNLIKE_RATE,
    }  # fmt: skip
    _warn(settings, alpha, model, shift, sets, error, strength)
    return JudgedLabels(probabilities, sets, doubt.status_codes(confident, unlike | ~seen), params)


def _names(found: Classified) -> tuple[str, ...]:
    """Return the names of the classifiers used by the views."""
    return tuple(str(name) for name in found.table["candidate"][:-1])


def _p_values(
    settings: Sets, found: Classified, calibration: Floats, codes: NDArray[np.integer], shift: DomainShift,
    cells: LabelCells,
) -> Floats:  # fmt: skip
    """Return conformal p-values (n, C) of every label, for cells as measured."""
    uniform: list[Floats | None] = [None, None]
    if settings.randomize and settings.method != "lac":
        uniform = [_uniform(cells.query.seeds), _uniform(np.arange(len(codes)))]
    scores, known = (
        label_scores(p, settings.method, u) for p, u in zip((found.measured, calibration), uniform, strict=True)
    )
    weights = {"weights": shift.reference, "own_weights": shift.query} if settings.weighted else {}
    return label_p_values(scores, known, codes, per_class=settings.per_class, **weights)


def _warn(
    settings: Sets, alpha: float, model: LabelModel, shift: DomainShift, sets: Mask, error: float, strength: float
) -> None:
    """Warn if there are too few calibration cells for conformal sets, or if the query is shifted."""
    codes = model.calibration_codes
    rare = too_few(codes, len(model.names), alpha)
    if strength < 1 and settings.per_class and rare.any():
        names = [model.names[i] for i in np.flatnonzero(rare)]
        _log.warn(
            f"{len(names)} labels have fewer than {int(np.ceil(1 / alpha)) - 1} calibration cells and are in "
            f"every set, for example {names[:3]}: train the prior with a larger calibration_fraction, or pass "
            "per_class=False."
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
