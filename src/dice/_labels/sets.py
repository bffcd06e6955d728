"""Prediction sets and status of labels, and the error to expect.

Split conformal prediction scores how badly a label fits a cell. The rank of this score among those of calibration cells
with their true labels is a p-value, and the set of a cell holds every label whose p-value is above alpha. The set holds
the true label with probability 1 - alpha if the cell is exchangeable with the calibration cells.

Under a shift, the error is estimated from the averaged probabilities of the views, which are flat where views disagree.
Labels are wrong more often than these probabilities say (docs/labels.md).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dice import _log
from dice._keys import AMBIGUOUS, CONFIDENT, UNLIKE
from dice._labels.classification import Classified
from dice._labels.model import LabelModel
from dice._labels.novel_cells import UNLIKE_RATE, p_values, unlike_cells
from dice._model.arrays import DOUBTFUL, softmax
from dice._model.sampler import CellNoise
from dice._types import Floats, Mask
from dice.options import Sets

#: An unreachable probability threshold, and the threshold above which a label is more likely than all others together.
NEVER, LIKELY = 1.01, 0.5
#: Random stream of the sets.
SETS = 3
#: Wrong labels per expected wrong label under a shift, its largest value, and its value for panels, whose views share
#: few genes: eight panels outside the benchmark needed 0.6 to 1.7.
ERROR_RATIO, MOST_RATIO, PANEL_RATIO = 1.4, 2.5, 1.7
#: Pseudo-count of expected errors that pulls the ratio between batches towards 1.
RATIO_ERRORS = 20.0
#: Error rate assumed for small queries, its weight in cells, and the largest error to expect. Fewer cells must never
#: give more confidence.
CAUTIOUS_ERROR, CAUTIOUS_CELLS, MOST_ERROR = 0.3, 50.0, 0.9


@dataclass(frozen=True)
class JudgedLabels(Classified):
    """Labels with sets (n, C) and status (n,), and with probabilities (n, C) adjusted for the shift."""

    sets: Mask
    status: NDArray[np.str_]


def judge(found: Classified, settings: Sets, alpha: float, min_probability: float) -> JudgedLabels:
    """Return the prediction set and the status of every cell.

    Cells that are unlike the reference are never confident, nor are cells with a label below `min_probability`.
    """
    cells, model = found.cells, found.model
    calibration, codes, seen = model.calibration(found.weights), model.calibration_codes, cells.seen
    ratio = error_ratio(model.batch_evidence, PANEL_RATIO if cells.prior.is_panel else ERROR_RATIO)
    error = expected_error(found.probabilities[seen], ratio, found.strength)
    probabilities = found.probabilities.copy()
    probabilities[seen] = tempered(probabilities[seen], error)
    # Sets per class are conformal for any composition of the query.
    strength = 0.0 if settings.per_class else found.strength
    ranks = _p_values(settings, found, calibration)
    sets = joint_sets(ranks, probabilities, alpha, strength, set_threshold(probabilities[seen], alpha))
    # With few calibration cells, the calibrated threshold is never reached. Under a shift, calibration cells cannot be
    # used: a confident label must then be more likely than all other labels together.
    calibrated = min(confident_from(calibration, codes, alpha), NEVER)
    least = max((1 - found.strength) * calibrated + found.strength * LIKELY, min_probability)
    confident, sets = widened(with_most_likely(sets, probabilities), probabilities, least)
    expected = float((probabilities * sets)[seen].sum(1).mean()) if strength and seen.any() else 1 - alpha
    params = found.record["params"] | {
        "error_ratio": ratio, "expected_error": error, "expected_coverage": expected,
        "confident_from": least, "unlike_rate": UNLIKE_RATE,
    }  # fmt: skip
    _warn(settings, alpha, model, params["shift_auc"], sets, error, strength)
    status = np.where(unlike_cells(cells, model) | ~seen, UNLIKE, np.where(confident, CONFIDENT, AMBIGUOUS))
    changed = {"probabilities": probabilities, "record": found.record | {"params": params}}
    return JudgedLabels(**vars(found) | changed, sets=sets, status=status)


def _p_values(settings: Sets, found: Classified, calibration: Floats) -> Floats:
    """Return conformal p-values (n, C) of every label, for cells as measured."""
    scores, codes = [], found.model.calibration_codes
    for probabilities, seeds in ((found.measured, found.cells.query.seeds), (calibration, np.arange(len(codes)))):
        if settings.method == "lac":
            scores.append(1 - probabilities)
        else:
            # The random number of a cell depends only on its seed.
            uniform = CellNoise(torch.as_tensor(seeds), SETS).uniform(0, 1)[:, 0].numpy().astype(np.float64)
            scores.append(adaptive_scores(probabilities, uniform))
    return label_p_values(scores[0], scores[1], codes, per_class=settings.per_class)


def _warn(
    settings: Sets, alpha: float, model: LabelModel, auc: float, sets: Mask, error: float, strength: float
) -> None:
    """Warn if there are too few calibration cells for conformal sets, or if the query is shifted."""
    codes, needed = model.calibration_codes, int(np.ceil(1 / alpha)) - 1
    rare = [name for name, few in zip(model.names, too_few(codes, len(model.names), alpha), strict=True) if few]
    if strength < 1 and settings.per_class and rare:
        _log.warn(
            f"{len(rare)} labels have fewer than {needed} calibration cells and are in every set, for example "
            f"{rare[:3]}: train with a larger calibration_fraction, or pass per_class=False."
        )
    elif strength < 1 and len(codes) + 1 < 1 / alpha:
        _log.warn(
            f"{len(codes)} calibration cells are too few for alpha={alpha:g}, so every set holds every label: pass a "
            f"larger alpha, or train with at least {needed} such cells (dice.Training(calibration_fraction=))."
        )
    if auc > DOUBTFUL:
        _log.warn(
            f"The query differs from its reference (AUC {auc:.2f}): about {error:.0%} of the labels may be "
            f"wrong, and sets hold {sets.sum(1).mean():.1f} labels on average. Check cells whose label you know with "
            "dice.tl.evaluate(..., protocol='labels')."
        )


def of_more_likely(probabilities: Floats) -> Floats:
    """Return the total probability (n, C) of the labels that are more likely than each label."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=1)
    totals = np.empty_like(ranked)
    np.put_along_axis(totals, order, np.cumsum(ranked, axis=1) - ranked, axis=1)
    return totals


def adaptive_scores(probabilities: Floats, uniform: Floats) -> Floats:
    """Return the APS score (n, C) of how badly each label fits each cell; larger is worse.

    The score is the total probability of all more likely labels, plus a random share of the label's own probability.
    The `uniform` random numbers (n,) make the coverage exact.
    """
    return of_more_likely(probabilities) + uniform[:, None] * probabilities


def label_p_values(
    scores: Floats, calibration: Floats, codes: NDArray[np.integer], *, per_class: bool = False
) -> Floats:
    """Return the p-value (n, C) of every label, from scores (n, C) and `calibration` scores (m, C).

    `codes` (m,) are the true labels of calibration cells. With `per_class`, a label is only compared with calibration
    cells of the same label.
    """
    true = calibration[np.arange(len(codes)), codes]
    if not per_class:
        return p_values(scores, true)
    columns = [p_values(scores[:, label], true[codes == label]) for label in range(scores.shape[1])]
    return np.stack(columns, axis=1)


def too_few(codes: NDArray[np.integer], n_classes: int, alpha: float) -> NDArray[np.bool_]:
    """Return a mask (C,) of classes with too few calibration cells for a p-value as small as alpha."""
    return 1 / (np.bincount(codes, minlength=n_classes) + 1) > alpha


def set_threshold(probabilities: Floats, alpha: float) -> float:
    """Return the probability threshold of the smallest sets that hold a share 1 - alpha of all probability (n, C)."""
    ordered = np.sort(probabilities, axis=None)[::-1]
    reached = np.cumsum(ordered) / max(len(probabilities), 1)
    return float(ordered[min(int(np.searchsorted(reached, 1 - alpha)), len(ordered) - 1)]) if len(ordered) else 0.0


def joint_sets(p_values: Floats, probabilities: Floats, alpha: float, strength: float, threshold: float) -> Mask:
    """Return sets (n, C): conformal sets without a shift, probability sets under a strong shift, mixtures between.

    A label is in the set if the weighted geometric mean of p-value / alpha and probability / threshold is at least 1.
    """
    if strength == 0:
        return np.asarray(p_values > alpha)
    conformal = np.log(np.maximum(p_values, 1e-12) / alpha)
    shifted = np.log(np.maximum(probabilities, 1e-12) / max(threshold, 1e-12))
    return np.asarray((1 - strength) * conformal + strength * shifted >= 0)


def with_most_likely(sets: Mask, probabilities: Floats) -> Mask:
    """Return sets (n, C) with the most likely label added, so that no set is empty. Coverage can only increase."""
    return np.asarray(sets | np.eye(sets.shape[1], dtype=bool)[probabilities.argmax(1)])


def confident_from(probabilities: Floats, codes: NDArray[np.integer], alpha: float) -> float:
    """Return the probability above which at most a share `alpha` of the best labels are wrong, or infinity.

    Calibration cells have probabilities (m, C) and labels (m,). One wrong cell is added to the calibration cells, so an
    alpha of 0.1 needs at least nine cells.
    """
    best = probabilities.max(1)
    order = np.argsort(-best, kind="stable")
    wrong = np.cumsum((probabilities.argmax(1) != codes)[order])
    # Cells with equal probabilities are treated alike.
    last = np.append(np.diff(best[order]) < 0, True)
    kept = np.flatnonzero(last & ((wrong + 1) / (np.arange(len(best)) + 2) <= alpha))
    return float(best[order[kept[-1]]]) if len(kept) else np.inf


def widened(sets: Mask, probabilities: Floats, least: float) -> tuple[Mask, Mask]:
    """Return the confident cells (n,), and sets (n, C) in which all other cells have at least two labels."""
    alone = sets.sum(1) == 1
    confident = alone & (probabilities.max(1) >= least)
    second = np.argsort(-probabilities, axis=1, kind="stable")[:, 1]
    return confident, sets | ((alone & ~confident)[:, None] & np.eye(sets.shape[1], dtype=bool)[second])


def error_ratio(evidence: Floats, least: float = ERROR_RATIO) -> float:
    """Return the number of wrong labels per expected wrong label under a shift, at least `least`.

    `evidence` (2,) holds wrong and expected wrong labels between batches of the reference. Batches differ less from
    each other than from a query of another technology, so the evidence never lowers the ratio.
    """
    wrong, expected = map(float, evidence)
    return min(least * max((wrong + RATIO_ERRORS) / (expected + RATIO_ERRORS), 1.0), MOST_RATIO)


def expected_error(probabilities: Floats, ratio: float, strength: float) -> float:
    """Return the expected share of wrong labels, given the probabilities (n, C) of cells, averaged over views.

    `ratio` is the number of wrong labels per expected wrong label under a shift. `strength` (0 to 1) is the strength of
    the shift.
    """
    if not (n := len(probabilities)):
        return 0.0
    error = float(1 - probabilities.max(1).mean()) * (1 + strength * (ratio - 1))
    weight = strength * CAUTIOUS_CELLS / (n + CAUTIOUS_CELLS)
    return min((1 - weight) * error + weight * max(error, CAUTIOUS_ERROR), MOST_ERROR)


def tempered(probabilities: Floats, error: float) -> Floats:
    """Return probabilities (n, C) flattened by a common power until they imply the expected error."""
    logs, low, high = np.log(np.maximum(probabilities, 1e-12)), 1.0, 50.0
    if not len(logs) or 1 - softmax(logs).max(1).mean() >= error - 1e-12:
        return probabilities
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if 1 - softmax(logs / middle).max(1).mean() < error else (low, middle)
    return softmax(logs / high)
