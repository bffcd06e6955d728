"""Scores of transferred labels and sets against known labels, which may have different names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from dice._labels.tree import LabelTree
from dice._types import Codes, Mask


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
    columns = {"accuracy": right, "coverage": covered, "set_size": sets.sum(1), "confident": confident}
    rows: list[dict[str, float]] = []
    for mine in (np.ones(len(truth), dtype=bool), *(truth == code for code in range(len(meant)))):
        row = {"n_cells": int(mine.sum())} | {name: _share(values[mine]) for name, values in columns.items()}
        rows.append(row | {"confident_accuracy": _share(right[mine & confident])})
    classes, of_given = merged_names(meant)
    called = np.where(given >= 0, of_given[given], -1)
    f1 = np.array([_f1(classes[truth] == code, called == code, right) for code in range(classes.max() + 1)])
    for row, score in zip(rows, [f1.mean(), *f1[classes]], strict=True):
        row["f1"] = float(score)
    return rows


def tree_scores_of(
    tree: LabelTree, nodes: Codes, truth: NDArray[np.integer], meant: Mask, given: NDArray[np.integer]
) -> list[dict[str, float]]:
    """Return the scores of safe labels (n,) and of all levels, in the order of :func:`label_scores_of`."""
    right = (tree.members[nodes] & meant[truth]).any(1)
    columns = {"safe_error": ~right, "safe_resolved": nodes < len(tree.names) - 1, "safe_finest": nodes < tree.n_labels}
    for depth, level in enumerate(tree.all_levels, 1):
        at = tree.at_level(depth)
        same = np.array([np.isin(at, at[row]) for row in meant])
        columns[f"accuracy_{level}"] = (given >= 0) & same[truth, given]
        columns[f"resolved_{level}"] = columns["safe_finest"] | (tree.depths[nodes] >= depth)
    masks = [np.ones(len(truth), dtype=bool), *(truth == code for code in range(len(meant)))]
    return [{name: _share(values[mine]) for name, values in columns.items()} for mine in masks]


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
