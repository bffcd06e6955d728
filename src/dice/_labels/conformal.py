"""Conformal p-values and prediction sets, which are valid for any classifier if cells are exchangeable.

Split conformal prediction scores how badly a label fits a cell. It ranks this score among the scores of calibration
cells with their true labels. The rank is a p-value, and a prediction set holds every label whose p-value is above
alpha. If the cell is exchangeable with the calibration cells, its true label is in the set with probability at least
1 - alpha. Weights (density ratios) extend this to a query with another distribution over the same states.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dice._keys import AMBIGUOUS, CONFIDENT, STATUSES, UNLIKE
from dice._types import Floats, Mask

#: RAPS adds this penalty to the score of a label for every rank beyond the first `RAPS_FREE` ranks.
RAPS_PENALTY, RAPS_FREE = 0.02, 2


def label_scores(probabilities: Floats, method: str, uniform: Floats | None = None) -> Floats:
    """Return a score (n, C) of how badly each label fits each cell; larger is worse.

    Parameters
    ----------
    probabilities
        Class probabilities (n, C); rows sum to 1.
    method
        ``"lac"`` (least ambiguous sets: one minus the probability), ``"aps"`` (adaptive sets: the probability of all
        labels that are at least as likely) or ``"raps"`` (the same with a penalty for late ranks).
    uniform
        Uniform variables (n,) that randomise the adaptive scores. With them coverage is exact; without them it is at
        least 1 - alpha.
    """
    if method == "lac":
        return 1 - probabilities
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=1)
    share = np.ones((len(ranked), 1)) if uniform is None else uniform[:, None]
    reached = np.cumsum(ranked, axis=1) - ranked + share * ranked
    if method == "raps":
        ranks = np.arange(1, probabilities.shape[1] + 1)
        reached = reached + RAPS_PENALTY * np.maximum(ranks - RAPS_FREE, 0)
    scores = np.empty_like(reached)
    np.put_along_axis(scores, order, reached, axis=1)
    return scores


def p_values(
    scores: Floats, calibration: Floats, weights: Floats | None = None, own_weights: Floats | None = None
) -> Floats:
    """Return p-values in the shape of `scores`: the share of scores, this one included, that are at least as bad.

    Parameters
    ----------
    scores
        Scores (n, ...) of the query.
    calibration
        Scores (m,) of the calibration cells.
    weights, own_weights
        Density ratios (m,) of the calibration cells and (n,) of the query cells; None for equal weights.
    """
    order = np.argsort(calibration, kind="stable")
    weight = np.ones(len(calibration)) if weights is None else np.asarray(weights, dtype=np.float64)[order]
    own = np.ones(len(scores)) if own_weights is None else np.asarray(own_weights, dtype=np.float64)
    own = own.reshape(-1, *[1] * (scores.ndim - 1))
    beyond = np.append(np.cumsum(weight[::-1])[::-1], 0.0)
    worse = beyond[np.searchsorted(calibration[order], scores, side="left")]
    return (worse + own) / (weight.sum() + own)


def label_p_values(
    scores: Floats, calibration: Floats, codes: NDArray[np.integer], *, per_class: bool = False,
    weights: Floats | None = None, own_weights: Floats | None = None,
) -> Floats:  # fmt: skip
    """Return the p-value (n, C) of every label for every cell.

    Parameters
    ----------
    scores
        Scores (n, C) of the query from :func:`label_scores`.
    calibration
        Scores (m, C) of the calibration cells.
    codes
        True labels (m,) of the calibration cells.
    per_class
        Compare a label only with calibration cells of that label. Coverage then holds for each class, but sets are
        large if a class has few calibration cells.
    weights, own_weights
        As in :func:`p_values`.
    """
    true = calibration[np.arange(len(codes)), codes]
    if not per_class:
        return p_values(scores, true, weights, own_weights)
    masks = [codes == label for label in range(scores.shape[1])]
    own = [None if weights is None else weights[mine] for mine in masks]
    columns = [p_values(scores[:, i], true[mine], own[i], own_weights) for i, mine in enumerate(masks)]
    return np.stack(columns, axis=1)


def too_few(codes: NDArray[np.integer], n_classes: int, alpha: float) -> NDArray[np.bool_]:
    """Return a mask (C,) of classes with too few calibration cells for a p-value as small as alpha."""
    return 1 / (np.bincount(codes, minlength=n_classes) + 1) > alpha


def benjamini_hochberg(p: Floats, fdr: float) -> NDArray[np.bool_]:
    """Return a mask (n,) of the discoveries at a false-discovery rate of at most `fdr`."""
    order = np.argsort(p, kind="stable")
    passed = np.flatnonzero(p[order] <= fdr * np.arange(1, len(p) + 1) / max(len(p), 1))
    found = np.zeros(len(p), dtype=bool)
    if len(passed):
        found[order[: passed[-1] + 1]] = True
    return found


def fewest_discoveries(n: int, n_calibration: int, fdr: float) -> int:
    """Return the smallest number of discoveries among n cells, all with the smallest possible p-value."""
    return int(np.ceil(n / (fdr * (n_calibration + 1)) - 1e-9))


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
