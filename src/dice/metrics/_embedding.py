"""Scores of embeddings: silhouette, neighbour votes and LISI."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.metrics import f1_score
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.preprocessing import normalize

from dice._arguments import seed
from dice._errors import InputError
from dice._types import Codes, Floats, Seed
from dice.metrics._clustering import labelled_cells


def silhouette(embedding: ArrayLike, labels: ArrayLike) -> float:
    """Average silhouette width of the labels by cosine distance, as in the paper.

    The time is linear in the number of cells.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions).
    labels
        Label of every cell; cells without a label are left out. A label of a single cell scores 0.

    Returns
    -------
    A number from -1 to 1. Higher values mean better separated labels.

    Examples
    --------
    >>> import dice
    >>> round(dice.metrics.silhouette([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], list("aabb")), 3)
    0.994
    """
    values, codes = labelled_cells(embedding, labels, min_labels=2)
    if codes.max() + 1 == len(codes):
        raise InputError("Every cell has a different label: pass labels that several cells share.")
    # The cosine distances of a cell to n cells sum to n - <unit, sum of units>.
    units = normalize(values)
    members = np.eye(codes.max() + 1)[codes]
    sizes = members.sum(axis=0)
    totals = sizes - units @ (members.T @ units).T
    rows = np.arange(len(codes))
    # A cell is at distance 0 from itself, even if it is a zero vector without direction.
    own_total = totals[rows, codes] - (1 - np.einsum("ij,ij->i", units, units))
    own = own_total / np.maximum(sizes[codes] - 1, 1)
    others = totals / sizes
    others[rows, codes] = np.inf
    nearest = others.min(axis=1)
    largest = np.maximum(own, nearest)
    # Labels of a single cell score 0 by definition. Identical cells also score 0, instead of 0/0.
    useful = (sizes[codes] > 1) & (largest > 0)
    return float(np.mean(np.where(useful, (nearest - own) / np.where(useful, largest, 1.0), 0.0)))


def knn_macro_f1(
    embedding: ArrayLike, labels: ArrayLike, *, n_neighbors: int = 15, n_splits: int = 5, random_state: Seed = 0
) -> float:
    """Cross-validated, macro-averaged F1 of labels that are predicted from the neighbours of each cell.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions).
    labels
        Label of every cell; cells without a label are left out.
    n_neighbors
        Number of neighbours that vote, at most the number of cells in the training folds.
    n_splits
        Number of folds. Each label is distributed evenly over the folds.
    random_state
        Seed of the folds.

    Returns
    -------
    A number from 0 to 1 in which rare labels count as much as frequent labels.

    Examples
    --------
    >>> import dice
    >>> dice.metrics.knn_macro_f1([[0.0], [0.1], [5.0], [5.1]], list("aabb"), n_neighbors=1)
    1.0
    """
    values, codes = labelled_cells(embedding, labels, min_labels=2)
    if n_splits < 2 or n_neighbors < 1:
        raise InputError(f"`n_splits` must be at least 2 and `n_neighbors` 1, got {n_splits} and {n_neighbors}.")
    n_splits = min(n_splits, len(codes))
    # Shuffle the cells, sort them by label and deal them out to the folds. Unlike scikit-learn's stratified folds, this
    # also works for rare labels.
    order = np.random.default_rng(seed(random_state)).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    folds = np.empty(len(codes), dtype=np.intp)
    folds[order] = np.arange(len(codes)) % n_splits
    smallest = len(codes) - np.bincount(folds).max()
    voters = KNeighborsClassifier(n_neighbors=min(n_neighbors, smallest))
    predicted = cross_val_predict(voters, values, codes, cv=PredefinedSplit(folds))
    return float(f1_score(codes, predicted, average="macro", zero_division=0.0))


def clisi(embedding: ArrayLike, labels: ArrayLike, *, perplexity: float = 30) -> float:
    """Mean cell-type LISI as Harmony computes it: the effective number of labels around a cell.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions).
    labels
        Cell type of every cell; cells without a cell type are left out.
    perplexity
        Effective number of neighbours. Three times as many neighbours are searched. If there are too
        few cells, the perplexity is lowered to a third of the number of other cells, but not below 2.

    Returns
    -------
    A number from 1, if every neighbourhood has one label, to the number of labels. Lower is better.

    Examples
    --------
    >>> import dice
    >>> round(dice.metrics.clisi([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], list("aaabbb")), 2)
    1.0
    """
    return _mean_lisi(*labelled_cells(embedding, labels), perplexity)


def ilisi(embedding: ArrayLike, batches: ArrayLike, *, perplexity: float = 30) -> float:
    """Mean integration LISI as Harmony computes it: the effective number of batches around a cell.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions).
    batches
        Batch of every cell; cells without a batch are left out.
    perplexity
        Effective number of neighbours. With few cells it is lowered as in :func:`clisi`.

    Returns
    -------
    A number from 1, if batches are apart, to the number of batches, if they are mixed. Higher is better.

    Examples
    --------
    >>> import dice
    >>> round(dice.metrics.ilisi([[0.0], [0.0], [0.0], [0.0]], list("abab")), 3)
    1.8
    """
    return _mean_lisi(*labelled_cells(embedding, batches, what="batches"), perplexity)


def lisi_neighbors(embedding: ArrayLike, labels: ArrayLike, *, n_neighbors: int = 9) -> float:
    """Mean LISI over a fixed number of equally weighted neighbours, as in the paper's tables.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions).
    labels
        Label of every cell; cells without a label are left out.
    n_neighbors
        Number of neighbours without the cell itself, at most all other cells.

    Returns
    -------
    A number from 1, if every neighbourhood has one label, to the number of labels.

    Examples
    --------
    >>> import dice
    >>> dice.metrics.lisi_neighbors([[0.0], [0.1], [5.0], [5.1]], list("aabb"), n_neighbors=1)
    1.0
    """
    values, codes = labelled_cells(embedding, labels)
    if n_neighbors < 1:
        raise InputError(f"`n_neighbors` must be at least 1, got {n_neighbors}.")
    n_neighbors = min(n_neighbors, len(codes) - 1)
    search = NearestNeighbors(n_neighbors=n_neighbors).fit(values)
    neighbors = codes[search.kneighbors(return_distance=False)]
    simpson = sum(np.mean(neighbors == c, axis=1) ** 2 for c in range(codes.max() + 1))
    return float(np.mean(1 / simpson))


def _mean_lisi(values: Floats, codes: Codes, perplexity: float) -> float:
    from harmonypy import compute_lisi

    if not perplexity > 1:
        raise InputError(f"`perplexity` must be above 1, got {perplexity}.")
    # With a perplexity above a third of the cells, harmonypy would weight all cells alike, and LISI would not be local.
    perplexity = min(perplexity, max((len(codes) - 1) // 3, 2))
    lisi = compute_lisi(values, pd.DataFrame({"label": codes}), ["label"], perplexity)
    # If a cell is so far away that only the weight of its nearest neighbour is not 0, harmonypy returns 0 for the cell.
    return float(np.maximum(lisi, 1.0).mean())
