"""Small functions of arrays: a subsample, probabilities of logits, and sums over chunks of cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dice._types import Chunk, Floats

Number = TypeVar("Number", bound=np.generic)


def subsample(rows: NDArray[Number], most: int) -> NDArray[Number]:
    """Return at most `most` evenly spaced rows, from the first to the last."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.intp)]


def softmax(logits: Floats) -> Floats:
    """Probabilities (..., C) of logits."""
    powers = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(-1, keepdims=True)


#: What a function finds in one chunk: numbers and arrays that add up over chunks.
Sums: TypeAlias = tuple[Any, ...]


class Summable(Protocol):
    """Cells that can be summed over, wherever their chunks are and whoever reads them."""

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


def correlations(found: Floats, truth: Floats) -> Floats:
    """Return Pearson's correlation (F,) of every feature over cells with a value; NaN for constant features."""
    known = ~np.isnan(truth)
    n = np.maximum(known.sum(0), 1)
    centred = [np.where(known, x - np.where(known, x, 0).sum(0) / n, 0) for x in (found, truth)]
    size = np.sqrt(np.square(centred[0]).sum(0) * np.square(centred[1]).sum(0))
    varies = size > 1e-9 * n
    return np.where(varies, (centred[0] * centred[1]).sum(0) / np.where(varies, size, 1), np.nan)
