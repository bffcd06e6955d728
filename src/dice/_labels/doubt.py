"""Reliability of labels: expected error, prediction sets that allow for it, and status.

If the query is like the reference, the error is known from calibration cells (:mod:`dice._labels.conformal`). Under a
shift, it is estimated from the averaged probabilities of the views, which are flat where views disagree. Labels are
then wrong more often than these probabilities say (docs/labels.md). Batches of the reference can raise this factor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dice._keys import AMBIGUOUS, CONFIDENT, STATUSES, UNLIKE
from dice._model.arrays import softmax
from dice._types import Floats, Mask

#: Share of reference cells that may be called unlike the reference. It is not corrected for multiple testing: with 100
#: calibration cells, a false-discovery rate of .1 calls no cell of 1,000 unless 99 have the smallest p-value.
UNLIKE_RATE = 0.01
#: Wrong labels per expected wrong label under a shift, and the largest value of this ratio.
ERROR_RATIO, MOST_RATIO = 1.4, 2.5
#: Pseudo-count of expected errors that pulls the ratio between batches towards 1.
RATIO_ERRORS = 20.0
#: Error rate assumed for small queries, and its weight in cells. Fewer cells must never give more confidence.
CAUTIOUS_ERROR, CAUTIOUS_CELLS = 0.3, 50.0
#: Separation (AUC) of query and reference up to which calibration cells apply in full, and from which they do not
#: apply. Sets change gradually between the two.
LIKE, UNLIKE_AUC = 0.6, 0.7
#: Number of standard errors added to the measured AUC.
POSSIBLE = 3.0
#: Largest error to expect.
MOST_ERROR = 0.9


def shift_strength(auc: float, n_cells: int | None = None) -> float:
    """How far (0 to 1) a query is from one that the reference's cells can calibrate.

    Few cells cannot show that they are like the reference. With `n_cells`, the largest AUC that they leave possible is
    judged: the cautious answer, for sets. Without it, the AUC as it was measured: the best guess, for labels.
    """
    error = 0.0 if n_cells is None else np.sqrt(1 / (12 * max(n_cells, 1)))
    return float(np.clip((auc + POSSIBLE * error - LIKE) / (UNLIKE_AUC - LIKE), 0, 1))


def error_ratio(evidence: Floats) -> float:
    """Return the number of wrong labels per expected wrong label under a shift.

    `evidence` (2,) holds the wrong and the expected wrong labels between batches of the reference. Batches differ less
    from each other than from a query of another technology, so the evidence can raise the ratio but never lower it.
    """
    wrong, expected = map(float, evidence)
    among_batches = (wrong + RATIO_ERRORS) / (expected + RATIO_ERRORS)
    return float(min(ERROR_RATIO * max(among_batches, 1.0), MOST_RATIO))


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


def set_threshold(probabilities: Floats, alpha: float) -> float:
    """Return the probability threshold of the smallest sets that hold a share 1 - alpha of all probability (n, C)."""
    ordered = np.sort(probabilities.ravel())[::-1]
    reached = np.cumsum(ordered) / max(len(probabilities), 1)
    return float(ordered[min(int(np.searchsorted(reached, 1 - alpha)), len(ordered) - 1)])


def joint_sets(p_values: Floats, probabilities: Floats, alpha: float, strength: float, threshold: float) -> Mask:
    """Return sets (n, C) that change gradually from conformal sets to probability sets with the strength of the shift.

    Two ratios are compared: the conformal p-value over alpha, and the probability over the threshold. A label is in the
    set if their geometric mean, weighted by the strength of the shift, is at least 1.
    """
    if strength == 0:
        return np.asarray(p_values > alpha)
    conformal = np.log(np.maximum(p_values, 1e-12) / alpha)
    shifted = np.log(np.maximum(probabilities, 1e-12) / max(threshold, 1e-12))
    return np.asarray((1 - strength) * conformal + strength * shifted >= 0)


def with_most_likely(sets: Mask, probabilities: Floats) -> Mask:
    """Return sets (n, C) with the most likely label added. They are never empty, and coverage can only increase."""
    filled = sets.copy()
    filled[np.arange(len(sets)), probabilities.argmax(1)] = True
    return filled


def confident_from(probabilities: Floats, codes: NDArray[np.integer], alpha: float) -> float:
    """Return the probability above which at most a share `alpha` of the best labels are wrong, or infinity.

    One additional wrong cell is counted, so that few calibration cells are not enough: alpha 0.1 takes nine right ones.

    Parameters
    ----------
    probabilities
        Probabilities (m, C) of the calibration cells.
    codes
        True labels (m,) of the calibration cells.
    alpha
        Share of labels that may be wrong.
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
    confident = (sets.sum(1) == 1) & (probabilities.max(1) >= least)
    rows = np.flatnonzero(~confident & (sets.sum(1) == 1))
    wide = sets.copy()
    if sets.shape[1] > 1:
        second = np.argsort(-probabilities[rows], axis=1, kind="stable")[:, 1]
        wide[rows, second] = True
    return confident, wide


def status_codes(confident: Mask, unlike: Mask) -> NDArray[np.intp]:
    """Return the status (n,) of every cell as positions in `STATUSES`."""
    known = np.where(confident, STATUSES.index(CONFIDENT), STATUSES.index(AMBIGUOUS))
    return np.where(unlike, STATUSES.index(UNLIKE), known).astype(np.intp)
