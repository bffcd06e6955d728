"""Small functions of arrays: a subsample, probabilities, sums over chunks, correlations, and variance of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._types import Chunk, Codes, Floats

Number = TypeVar("Number", bound=np.generic)


def subsample(rows: NDArray[Number], most: int) -> NDArray[Number]:
    """Return at most `most` evenly spaced rows, from the first to the last."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.intp)]


def softmax(logits: Floats) -> Floats:
    """Probabilities (..., C) of logits."""
    powers = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(-1, keepdims=True)


#: Results of a function for one chunk: numbers and arrays that are added up over chunks.
Sums: TypeAlias = tuple[Any, ...]


class Summable(Protocol):
    """Cells that a function can be summed over, in memory, on disk or by workers."""

    def total(self, function: Callable[[Chunk], Sums]) -> Sums:
        """The sum of ``function(chunk)`` over all chunks, in double precision."""
        ...


def add_up(parts: Iterable[Sums]) -> Sums:
    """Sum of tuples, entry by entry; only the running sum and one part are held at a time."""
    total: list[Any] = []
    for part in parts:
        if not total:
            total = [np.array(value, dtype=np.float64) for value in part]
            continue
        for running, value in zip(total, part, strict=True):
            running += value
    return tuple(total)


#: Labels with fewer cells are not used to compare batches.
FEWEST_IN_GROUP = 10


def explained_by_batches(x: Chunk, batches: Codes, labels: Codes | None = None) -> float:
    """Share of the variance of expression (n, d) within labels (n,) that batches (n,) explain, beyond chance.

    The omega squared of a one-way analysis of variance, with sums of squares taken over labels and genes. Cells
    without a label (-1) are left out. Batches that share no label explain nothing.
    """
    strata = np.zeros(len(batches), dtype=np.intp) if labels is None else np.asarray(labels)
    size = np.bincount(strata[strata >= 0], minlength=strata.max(initial=0) + 1)
    kept = np.flatnonzero((strata >= 0) & (size[strata] >= FEWEST_IN_GROUP))
    if not len(kept):
        return 0.0
    values = sparse.csr_array(x)[kept].astype(np.float64)
    _, whole = np.unique(strata[kept], return_inverse=True)
    _, parts = np.unique(np.stack([strata[kept], batches[kept]]), axis=1, return_inverse=True)
    squares = float((values.data**2).sum())
    (by_label, n_labels), (by_batch, n_batches) = _between(values, whole), _between(values, parts.ravel())
    free_between, free_within = n_batches - n_labels, len(kept) - n_batches
    if free_between < 1 or free_within < 1:
        return 0.0
    within = (squares - by_batch) / free_within
    return float(((by_batch - by_label) - free_between * within) / max(squares - by_label + within, 1e-12))


def _between(values: sparse.csr_array, codes: Codes) -> tuple[float, int]:
    """Sum over groups of the squared sum of their cells by their number, and how many groups there are."""
    n_groups = int(codes.max()) + 1
    member = sparse.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(n_groups, len(codes)))
    sums = (member @ values).power(2).sum(1)
    return float((np.asarray(sums).ravel() / np.bincount(codes)).sum()), n_groups


def correlations(found: Floats, truth: Floats) -> Floats:
    """Return Pearson's correlation (F,) of every feature over cells with a value; NaN for constant features."""
    known = ~np.isnan(truth)
    n = np.maximum(known.sum(0), 1)
    centred = [np.where(known, x - np.where(known, x, 0).sum(0) / n, 0) for x in (found, truth)]
    size = np.sqrt(np.square(centred[0]).sum(0) * np.square(centred[1]).sum(0))
    varies = size > 1e-9 * n
    return np.where(varies, (centred[0] * centred[1]).sum(0) / np.where(varies, size, 1), np.nan)
