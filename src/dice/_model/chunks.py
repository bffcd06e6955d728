"""Sums over all cells of a matrix, of which only chunks are ever at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import numpy as np

from dice._types import Chunk

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
