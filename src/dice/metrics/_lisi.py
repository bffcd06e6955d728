"""Local inverse Simpson's index: how many labels a cell's neighbourhood holds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.neighbors import NearestNeighbors

from dice._errors import InputError
from dice._types import Codes, Floats
from dice.metrics._inputs import labelled_cells


def clisi(embedding: ArrayLike, labels: ArrayLike, *, perplexity: float = 30) -> float:
    """Mean cell-type LISI as Harmony computes it: effective number of labels around a cell.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions).
    labels
        Cell type of every cell; cells without one are left out.
    perplexity
        Effective number of neighbours, of three times as many that are looked at. With too few
        cells for that, it is lowered to a third of the other cells, but not below 2.

    Returns
    -------
    1 where each neighbourhood holds one label, up to the number of labels; lower is better.

    Examples
    --------
    >>> import dice
    >>> round(dice.metrics.clisi([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], list("aaabbb")), 2)
    1.0
    """
    return _mean_lisi(*labelled_cells(embedding, labels), perplexity)


def ilisi(embedding: ArrayLike, batches: ArrayLike, *, perplexity: float = 30) -> float:
    """Mean integration LISI as Harmony computes it: effective number of batches around a cell.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions).
    batches
        Batch of every cell; cells without one are left out.
    perplexity
        Effective number of neighbours, lowered for few cells as in :func:`clisi`.

    Returns
    -------
    1 where batches are apart, up to the number of batches where they mix; higher is better.

    Examples
    --------
    >>> import dice
    >>> round(dice.metrics.ilisi([[0.0], [0.0], [0.0], [0.0]], list("abab")), 3)
    1.8
    """
    return _mean_lisi(*labelled_cells(embedding, batches, what="batches"), perplexity)


def lisi_neighbors(embedding: ArrayLike, labels: ArrayLike, *, n_neighbors: int = 9) -> float:
    """Mean LISI over a fixed number of equally weighted neighbours, the form of the paper's tables.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions).
    labels
        Label of every cell; cells without one are left out.
    n_neighbors
        Number of neighbours, the cell itself not counted (at most all other cells).

    Returns
    -------
    1 where each neighbourhood holds one label, up to the number of labels.

    Examples
    --------
    >>> import dice
    >>> dice.metrics.lisi_neighbors([[0.0], [0.1], [5.0], [5.1]], list("aabb"), n_neighbors=1)
    1.0
    """
    values, codes = labelled_cells(embedding, labels)
    _check_two_cells(codes)
    if n_neighbors < 1:
        raise InputError(f"n_neighbors={n_neighbors} is too small: use 1 or more.")
    n_neighbors = min(n_neighbors, len(codes) - 1)
    search = NearestNeighbors(n_neighbors=n_neighbors).fit(values)
    neighbors = codes[search.kneighbors(return_distance=False)]
    simpson = sum(np.mean(neighbors == c, axis=1) ** 2 for c in range(codes.max() + 1))
    return float(np.mean(1 / simpson))


def _mean_lisi(values: Floats, codes: Codes, perplexity: float) -> float:
    from harmonypy import compute_lisi

    _check_two_cells(codes)
    if not perplexity > 1:
        raise InputError(f"perplexity={perplexity} is too small: use a number above 1.")
    # Beyond a third of the cells harmonypy would weight all cells alike: nothing local is left.
    perplexity = min(perplexity, max((len(codes) - 1) // 3, 2))
    lisi = compute_lisi(values, pd.DataFrame({"label": codes}), ["label"], perplexity)
    # 0 marks a cell so far out that all but its nearest neighbour's weight vanished.
    return float(np.maximum(lisi, 1.0).mean())


def _check_two_cells(codes: Codes) -> None:
    if len(codes) < 2:
        raise InputError("LISI needs at least two labelled cells: pass more cells.")
