"""Scores of transferred labels and sets against known labels, which may have different names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from dice._types import Codes, Floats, Mask

#: Smallest probability in the log-loss.
FLOOR = 1e-4


def label_scores_of(
    truth: NDArray[np.integer], meant: Mask, given: NDArray[np.integer], sets: Mask, confident: Mask
) -> list[dict[str, float]]:
    """Return the scores of all cells, then of the cells of each known label.

    F1 is computed on the merged classes of :func:`merged_names`. For all cells it is the mean over these classes.

    Parameters
    ----------
    truth
        Known label (n,) of every cell.
    meant
        Mask (T, C) of the reference labels that correspond to each known label.
    given
        Predicted label (n,) of every cell; -1 for unassigned cells.
    sets
        Prediction sets (n, C).
    confident
        Mask (n,) of the cells with the status "confident".
    """
    right = (given >= 0) & meant[truth, given]
    covered = (sets & meant[truth]).any(1)
    rows = []
    for mine in (np.ones(len(truth), dtype=bool), *(truth == code for code in range(len(meant)))):
        sure = mine & confident
        rows.append(
            {
                "n_cells": int(mine.sum()),
                "accuracy": _share(right[mine]),
                "coverage": _share(covered[mine]),
                "set_size": float(sets[mine].sum(1).mean()),
                "confident": _share(confident[mine]),
                "confident_accuracy": _share(right[sure]),
            }
        )
    classes, of_given = merged_names(meant)
    called = np.where(given >= 0, of_given[given], -1)
    f1 = np.array([_f1(classes[truth] == code, called == code, right) for code in range(classes.max() + 1)])
    for row, score in zip(rows, [f1.mean(), *f1[classes]], strict=True):
        row["f1"] = float(score)
    return rows


def merged_names(meant: Mask) -> tuple[Codes, Codes]:
    """Return common classes, as codes of the known labels (T,) and of the reference labels (C,).

    Known labels with the same reference label form one class. Reference labels of the same known label do too.
    Reference labels without a known label have the code -1.
    """
    n_known, n_names = meant.shape
    links = np.zeros((n_known + n_names,) * 2, dtype=bool)
    links[:n_known, n_known:] = meant
    _, codes = connected_components(links, directed=False)
    used, known = np.unique(codes[:n_known], return_inverse=True)
    place = np.full(codes.max(initial=0) + 1, -1)
    place[used] = np.arange(len(used))
    return known.astype(np.intp), place[codes[n_known:]].astype(np.intp)


def _f1(mine: Mask, called: Mask, right: Mask) -> float:
    """Return the F1 of a class: `mine` is the mask of its cells, `called` that of cells predicted as this class."""
    return float(2 * (mine & right).sum() / max(mine.sum() + called.sum(), 1))


def _share(values: Mask) -> float:
    return float(values.mean()) if len(values) else float("nan")


def log_loss(probabilities: Floats, codes: NDArray[np.integer]) -> float:
    """Return the mean negative log probability of the true classes (n,)."""
    return float(-np.log(np.maximum(probabilities[np.arange(len(codes)), codes], FLOOR)).mean())


def macro_f1(probabilities: Floats, codes: NDArray[np.integer]) -> float:
    """Return the F1 of the most likely class, averaged over the classes with cells."""
    return float(np.mean([score for score in f1_scores(probabilities, codes) if not np.isnan(score)]))


def f1_scores(probabilities: Floats, codes: NDArray[np.integer]) -> list[float]:
    """Return the F1 of every class; NaN for classes without cells."""
    guess = probabilities.argmax(1)
    scores = []
    for label in range(probabilities.shape[1]):
        hit, n = np.sum((guess == label) & (codes == label)), np.sum(codes == label)
        scores.append(float(2 * hit / (np.sum(guess == label) + n)) if n else float("nan"))
    return scores
