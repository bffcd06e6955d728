"""How well transferred labels and their sets agree with known labels, which may have other names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from dice._types import Codes, Mask


def label_scores_of(
    truth: NDArray[np.integer], meant: Mask, given: NDArray[np.integer], sets: Mask, confident: Mask
) -> list[dict[str, float]]:
    """Scores of all cells, then of those of every known label.

    F1 is that of the classes that both sides can be compared by; for all cells it is the mean over these classes.

    Parameters
    ----------
    truth
        Known label (n,) of every cell.
    meant
        Which of the reference's labels (T, C) each of the known ones stands for.
    given
        Label (n,) that every cell was given, -1 for none.
    sets
        Prediction sets (n, C).
    confident
        Cells (n,) whose label is beyond doubt.
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
    """Classes that both sides can be compared by: codes of the known labels (T,) and of the reference's (C,).

    Two known labels with one name in the reference are one class, and so are two names of one known label. The
    reference's labels that nobody means are -1.
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
    """Harmonic mean of precision and recall, of cells `mine` that were `called` so."""
    return float(2 * (mine & right).sum() / max(mine.sum() + called.sum(), 1))


def _share(values: Mask) -> float:
    return float(values.mean()) if len(values) else float("nan")
