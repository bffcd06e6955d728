"""How far labels can be trusted: the error to expect, sets that allow for it, and a status in a word.

Where a query is like its reference, calibration cells tell the error (:mod:`dice._labels.conformal`). Where it is
not, they cannot. There the averaged probabilities of several views tell it: views that disagree make them flat. Under a
shift labels are wrong more often than these probabilities say (docs/labels.md), and batches of the reference can show
that it is more often still.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dice._keys import AMBIGUOUS, CONFIDENT, STATUSES, UNLIKE
from dice._model.arrays import softmax
from dice._types import Floats, Mask

#: Share of the reference's own cells that may be called unlike it. No correction for many cells: with 100 calibration
#: cells a false-discovery rate of .1 calls nothing among 1,000 cells unless 99 of them share the smallest p-value.
UNLIKE_RATE = 0.01
#: Wrong labels per label that is expected to be wrong, under a shift, and the most that it can be.
ERROR_RATIO, MOST_RATIO = 1.4, 2.5
#: Expected errors that a ratio of 1 between the reference's own batches counts as.
RATIO_ERRORS = 20.0
#: An error rate of labels in small queries, and the cells that it counts as: few cells may never mean less doubt.
CAUTIOUS_ERROR, CAUTIOUS_CELLS = 0.3, 50.0
#: How well query and reference are told apart (AUC) where the reference's cells stop to calibrate a query, and where
#: they do not calibrate it at all; sets change from one to the other in between.
LIKE, UNLIKE_AUC = 0.6, 0.7
#: Standard errors that an AUC may be larger than it was measured.
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
    """Wrong labels per expected wrong label under a shift, with those of the reference's own batches (2,).

    Batches of one reference are closer to each other than to a query of another technology: where their labels are
    wrong more often than expected, the ratio rises by as much, and it never falls.
    """
    wrong, expected = map(float, evidence)
    among_batches = (wrong + RATIO_ERRORS) / (expected + RATIO_ERRORS)
    return float(min(ERROR_RATIO * max(among_batches, 1.0), MOST_RATIO))


def expected_error(probabilities: Floats, ratio: float, strength: float) -> float:
    """Share of wrong labels to expect of cells with these averaged probabilities (n, C).

    Parameters
    ----------
    probabilities
        Mean over views.
    ratio
        Wrong labels per expected wrong label, where the query is shifted.
    strength
        How much of a shift there is, from 0 to 1.
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
    """Probabilities (n, C), flattened by one power until their best labels are wrong as often as expected."""
    logs = np.log(np.maximum(probabilities, 1e-12))
    low, high = 1.0, 50.0
    if 1 - softmax(logs).max(1, initial=0).mean() >= error - 1e-12:
        return probabilities
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if 1 - softmax(logs / middle).max(1).mean() < error else (low, middle)
    return softmax(logs / high)


def set_threshold(probabilities: Floats, alpha: float) -> float:
    """Probability from which on labels make the smallest sets that hold a share 1 - alpha of all probability (n, C)."""
    ordered = np.sort(probabilities.ravel())[::-1]
    reached = np.cumsum(ordered) / max(len(probabilities), 1)
    return float(ordered[min(int(np.searchsorted(reached, 1 - alpha)), len(ordered) - 1)])


def joint_sets(p_values: Floats, probabilities: Floats, alpha: float, strength: float, threshold: float) -> Mask:
    """Sets (n, C) between conformal ones and those of a shift, which meet without a jump.

    A label is in the set where its conformal p-value relative to alpha, and its probability relative to the threshold,
    are large enough together: their geometric mean, weighted by the strength of the shift, is at least 1.
    """
    if strength == 0:
        return np.asarray(p_values > alpha)
    conformal = np.log(np.maximum(p_values, 1e-12) / alpha)
    shifted = np.log(np.maximum(probabilities, 1e-12) / max(threshold, 1e-12))
    return np.asarray((1 - strength) * conformal + strength * shifted >= 0)


def with_most_likely(sets: Mask, probabilities: Floats) -> Mask:
    """Sets (n, C) that hold the most likely label, and are therefore never empty: coverage can only grow."""
    filled = sets.copy()
    filled[np.arange(len(sets)), probabilities.argmax(1)] = True
    return filled


def confident_from(probabilities: Floats, codes: NDArray[np.integer], alpha: float) -> float:
    """Probability from which on at most a share `alpha` of the most likely labels are wrong; infinite if there is none.

    The next cell counts as wrong, so that few calibration cells promise nothing: at .1 it takes nine that are right.

    Parameters
    ----------
    probabilities
        Of the calibration cells (m, C).
    codes
        Their true labels (m,).
    alpha
        Share that may be wrong.
    """
    best = probabilities.max(1)
    order = np.argsort(-best, kind="stable")
    wrong = np.cumsum((probabilities.argmax(1) != codes)[order])
    # Cells that are equally likely are confident together.
    last = np.append(np.diff(best[order]) < 0, True)
    kept = np.flatnonzero(last & ((wrong + 1) / (np.arange(len(best)) + 2) <= alpha))
    return float(best[order[kept[-1]]]) if len(kept) else np.inf


def widened(sets: Mask, probabilities: Floats, least: float) -> tuple[Mask, Mask]:
    """Cells (n,) whose one label is likely enough, and sets (n, C) of which all others have at least two labels."""
    confident = (sets.sum(1) == 1) & (probabilities.max(1) >= least)
    rows = np.flatnonzero(~confident & (sets.sum(1) == 1))
    wide = sets.copy()
    if sets.shape[1] > 1:
        second = np.argsort(-probabilities[rows], axis=1, kind="stable")[:, 1]
        wide[rows, second] = True
    return confident, wide


def in_a_word(confident: Mask, unlike: Mask) -> NDArray[np.intp]:
    """Codes (n,) in `STATUSES`."""
    told = np.where(confident, STATUSES.index(CONFIDENT), STATUSES.index(AMBIGUOUS))
    return np.where(unlike, STATUSES.index(UNLIKE), told).astype(np.intp)
