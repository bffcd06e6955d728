"""Run functions on the blocks of dask arrays.

dask calls them in threads or on the user's cluster. A function and its data (such as a prior) are sent to each worker
once.
"""

import operator
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._data import sources
from dice._types import Chunk

#: Chunks of one block, each with the range of cells that it holds.
Numbered: TypeAlias = Iterator[tuple[Chunk, slice]]
#: Number of partial sums that are added up at a time.
FAN_IN = 4


@dataclass(frozen=True)
class OnBlock:
    """Function of one block. It passes the chosen genes of the cells to `gather`, `size` cells at a time."""

    gather: Callable[[Numbered], Any]
    genes: NDArray[np.intp] | None
    size: int
    rules: sources.Rules

    def __call__(self, block: Any, rows: slice) -> Any:
        return self.gather(self._chunks(block, rows))

    def _chunks(self, block: Any, rows: slice) -> Numbered:
        block = sources.checked(block)
        block = block.tocsr() if sparse.issparse(block) else block
        # A block without cells yields one empty chunk, so that its results have a shape.
        for start in range(rows.start, max(rows.stop, rows.start + 1), self.size):
            stop = min(start + self.size, rows.stop)
            part = block[start - rows.start : stop - rows.start]
            yield sources.clean(part, self.genes, start, self.rules), slice(start, stop)


def run(data: Any, function: Callable[[Any, slice], Any], *, desc: str, summed: bool = False) -> list[Any]:
    """Return ``function(block, rows)`` for every block of cells with all genes, in order, or the sum of all.

    The sum does not depend on the number of workers. Schedulers in this process show the progress of the blocks; a
    cluster has a dashboard.
    """
    import dask
    from dask.callbacks import Callback

    # A random name, because dask would hash the whole function and its data to find a name.
    shared = dask.delayed(function, name=f"dice-{uuid.uuid4().hex}", traverse=False)
    call, add = (dask.delayed(step, pure=False) for step in (operator.call, sources.add_up))
    stops = np.cumsum(data.chunks[0]).tolist()
    blocks = data.rechunk({1: -1}).to_delayed().ravel()
    results = [call(shared, block, slice(*rows)) for block, rows in zip(blocks, pairwise([0, *stops]), strict=True)]
    keys = {result.key for result in results}
    while summed and len(results) > 1:
        results = [add(results[first : first + FAN_IN]) for first in range(0, len(results), FAN_IN)]
    with _log.progress(total=len(keys), desc=desc, unit="block") as bar:

        def finished(key: Any, *_: Any) -> None:
            if key in keys:
                bar.update()

        with Callback(posttask=finished):
            return list(dask.compute(*results))


class LazyRows:
    """Rows of a dask array. In a pass over the cells, each block is computed once."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.shape: tuple[int, int] = data.shape
        #: Where one block of cells ends and the next one begins.
        self.edges: NDArray[np.intp] = np.concatenate([[0], np.cumsum(data.chunks[0])]).astype(np.intp)
        self._range: tuple[int, int] = (0, 0)
        self._block: Any = None

    def __getitem__(self, rows: slice) -> Any:
        first = self.edges[max(np.searchsorted(self.edges, rows.start, side="right") - 1, 0)]
        last = self.edges[np.searchsorted(self.edges, rows.stop)]
        if self._block is None or self._range != (first, last):
            self._block = None  # Two blocks are never held at once.
            block = self.data[first:last].compute()
            self._block = sources.CompressedRows.of(block.tocsr()) if sparse.issparse(block) else block
            self._range = (first, last)
        return self._block[rows.start - first : rows.stop - first]
