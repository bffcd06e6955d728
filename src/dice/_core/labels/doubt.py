"""What the label of a cell is worth, in a word; every threshold is an error rate among calibration cells.

Measured on random splits (bmmc, TEA-seq, pancreas, Liu; alpha = 0.1, one seed, earlier classifiers): of the cells whose
set has one label .096, .107, .073 and .127 are wrong, of those that are as likely as `confident_from` asks .084, .085,
.061 and .106, and of the 2 to 6 % in between .40 to .54: these are ambiguous too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dice._types import Floats, Mask

CONFIDENT, AMBIGUOUS, UNLIKE = STATUSES = ("confident", "ambiguous", "unlike the reference")
#: Share of the reference's own cells that may be called unlike it. No correction for many cells: with 100 calibration
#: cells a false-discovery rate of .1 calls nothing among 1,000 cells unless 99 of them share the smallest p-value.
UNLIKE_RATE = 0.01


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
