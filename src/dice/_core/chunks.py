"""Sums over all cells of a matrix, of which only chunks are ever at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from dice._core.standardize import Chunk

#: What a function finds in one chunk: numbers and arrays that add up over chunks.
Sums: TypeAlias = tuple[Any, ...]


class Cells(Protocol):
    """Anything that can be gone through chunk by chunk, wherever and by whomever."""

    def total(self, function: Callable[[Chunk], Sums]) -> Sums:
        """The sum of ``function(chunk)`` over all chunks, in double precision."""
        ...


@dataclass(frozen=True)
class Chunks:
    """Chunks taken one after the other from a fresh iterator."""

    fresh: Callable[[], Iterable[Chunk]]

    def total(self, function: Callable[[Chunk], Sums]) -> Sums:
        return add_up(map(function, self.fresh()))


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
