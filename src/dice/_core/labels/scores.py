"""How well transferred labels and their sets agree with known labels, which may have other names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dice._types import Mask


def label_scores_of(
    truth: NDArray[np.integer], meant: Mask, given: NDArray[np.integer], sets: Mask, confident: Mask
) -> list[dict[str, float]]:
    """Scores of all cells, then of those of every known label.

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
    f1 = [_f1(truth == code, (given >= 0) & labels[given], right) for code, labels in enumerate(meant)]
    for row, score in zip(rows, [float(np.mean(f1)), *f1], strict=True):
        row["f1"] = score
    return rows


def _f1(mine: Mask, called: Mask, right: Mask) -> float:
    """Harmonic mean of precision and recall, of cells `mine` that were `called` so."""
    return float(2 * (mine & right).sum() / max(mine.sum() + called.sum(), 1))


def _share(values: Mask) -> float:
    return float(values.mean()) if len(values) else float("nan")
