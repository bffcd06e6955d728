"""One block of cells, from whatever holds it to clean float32 chunks, on whichever worker has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._anndata import sources
from dice._core.chunks import Sums, add_up
from dice._core.standardize import Chunk
from dice._errors import InputError

#: Chunks of one block, each with the range of cells that it holds.
Numbered: TypeAlias = Iterator[tuple[Chunk, slice]]


class NotFiniteError(InputError):
    """Cells at the positions `rows` hold values that are not finite."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__(rows)
        self.rows = rows


@dataclass(frozen=True)
class OnBlock:
    """Gathers what becomes of the chosen genes of one block, `size` cells at a time."""

    gather: Callable[[Numbered], Any]
    genes: NDArray[np.intp] | None
    size: int

    def __call__(self, block: Any, rows: slice) -> Any:
        return self.gather(self._chunks(block, rows))

    def _chunks(self, block: Any, rows: slice) -> Numbered:
        block = sources.as_scipy(block)
        if sparse.issparse(block):
            block = block.tocsr()
        # A block without cells is one chunk without cells: its results have a shape, too.
        for start in range(rows.start, max(rows.stop, rows.start + 1), self.size):
            stop = min(start + self.size, rows.stop)
            yield clean(block[start - rows.start : stop - rows.start], self.genes, start), slice(start, stop)


def listed(function: Callable[[Chunk, slice], Any], chunks: Numbered) -> list[Any]:
    return [function(chunk, rows) for chunk, rows in chunks]


def summed(cells: NDArray[np.bool_] | None, function: Callable[[Chunk], Sums], chunks: Numbered) -> Sums:
    """Sum over the chosen cells, or all."""
    return add_up(function(chunk if cells is None else chunk[cells[rows]]) for chunk, rows in chunks)


def joined(function: Callable[[Chunk, slice], NDArray[np.float32]], chunks: Numbered) -> NDArray[np.float32]:
    return np.concatenate([function(chunk, rows) for chunk, rows in chunks])


def clean(block: Any, genes: NDArray[np.intp] | None, start: int) -> Chunk:
    """Chosen genes of cells from position `start` on, in memory of their own and finite."""
    chunk = own(block)
    if genes is not None:
        chunk = chunk[:, genes]
    values = chunk.data if sparse.issparse(chunk) else chunk
    # A sum is finite only if its terms are: one pass without a mask in the usual case.
    if not np.isfinite(np.sum(values, dtype=np.float64)):
        wrong = np.nonzero(~np.isfinite(values))[0]
        cells = np.searchsorted(chunk.indptr, wrong, side="right") - 1 if sparse.issparse(chunk) else wrong
        raise NotFiniteError((start + np.unique(cells)).tolist())
    return chunk


def own(block: Any) -> Chunk:
    """A block as float32 in memory of its own; each entry of a sparse one is stored once."""
    block = sources.as_scipy(block)
    if not sparse.issparse(block):
        return sources.to_float32(block)
    chunk = sources.CompressedRows.of(block.tocsr())[0 : block.shape[0]]
    chunk.sum_duplicates()
    return chunk
