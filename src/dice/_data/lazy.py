"""Functions over the blocks of a dask array, run by dask: in threads here, or by the user's own cluster.

A function, with all that it carries (a prior, loadings), is one node of the graph: it reaches each worker once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._data import sources
from dice._model.arrays import Sums, add_up
from dice._types import Chunk

#: A function of one block and of the range of cells that it holds.
BlockFunction: TypeAlias = Callable[[Any, slice], Any]
#: Chunks of one block, each with the range of cells that it holds.
Numbered: TypeAlias = Iterator[tuple[Chunk, slice]]
#: Partial sums that are added up at a time.
FAN_IN = 4


@dataclass(frozen=True)
class OnBlock:
    """Gathers what becomes of the chosen genes of one block, `size` cells at a time, on whichever worker has it."""

    gather: Callable[[Numbered], Any]
    genes: NDArray[np.intp] | None
    size: int
    factor: float = 1.0

    def __call__(self, block: Any, rows: slice) -> Any:
        return self.gather(self._chunks(block, rows))

    def _chunks(self, block: Any, rows: slice) -> Numbered:
        block = sources.as_scipy(block)
        if sparse.issparse(block):
            block = block.tocsr()
        # A block without cells is one chunk without cells: its results have a shape, too.
        for start in range(rows.start, max(rows.stop, rows.start + 1), self.size):
            stop = min(start + self.size, rows.stop)
            part = block[start - rows.start : stop - rows.start]
            yield sources.clean(part, self.genes, start, self.factor), slice(start, stop)


def listed(function: Callable[[Chunk, slice], Any], chunks: Numbered) -> list[Any]:
    return [function(chunk, rows) for chunk, rows in chunks]


def joined(function: Callable[[Chunk, slice], NDArray[np.float32]], chunks: Numbered) -> NDArray[np.float32]:
    return np.concatenate(listed(function, chunks))


def summed(cells: NDArray[np.bool_] | None, function: Callable[[Chunk], Sums], chunks: Numbered) -> Sums:
    """Sum over the chosen cells, or all."""
    return add_up(function(chunk if cells is None else chunk[cells[rows]]) for chunk, rows in chunks)


def each(data: Any, function: BlockFunction, *, desc: str, skip: Collection[int] = ()) -> list[Any]:
    """Results for the blocks in order; those that begin at a cell in `skip` are left out."""
    tasks = _tasks(data, function, skip)
    return _compute(tasks, tasks, desc)


def total(data: Any, function: BlockFunction, *, desc: str) -> Sums:
    """Sum of the results over all blocks, in an order that does not depend on who computes them."""
    import dask

    parts = tasks = _tasks(data, function)
    add = dask.delayed(add_up, pure=False)
    while len(parts) > 1:
        parts = [add(parts[first : first + FAN_IN]) for first in range(0, len(parts), FAN_IN)]
    return _compute(parts, tasks, desc)[0]


def map_rows(data: Any, function: BlockFunction, shape: tuple[int, ...]) -> Any:
    """The lazy float32 array (cells, *shape) that the function makes of the blocks."""
    return in_rows(data).map_blocks(
        _with_rows,
        function=_shared(function),
        dtype=np.float32,
        chunks=(data.chunks[0], *((size,) for size in shape)),
        new_axis=list(range(2, len(shape) + 1)) or None,
        meta=np.empty((0,) * (len(shape) + 1), np.float32),
        name=f"dice-{uuid.uuid4().hex}",
    )


def together(*arrays: Any) -> tuple[NDArray[Any], ...]:
    """Arrays in memory, with those that are lazy computed in one pass over what they come from."""
    if all(isinstance(array, np.ndarray) for array in arrays):
        return arrays
    import dask

    return tuple(dask.compute(*arrays))


def in_rows(data: Any) -> Any:
    """A dask array whose blocks hold whole cells."""
    return data if len(data.chunks[1]) == 1 else data.rechunk({1: -1})


def _with_rows(block: Any, *, function: BlockFunction, block_info: Any = None) -> NDArray[np.float32]:
    return function(block, slice(*block_info[0]["array-location"][0]))


def _tasks(data: Any, function: BlockFunction, skip: Collection[int] = ()) -> list[Any]:
    """One delayed call for every block."""
    import dask

    shared, run = _shared(function), dask.delayed(_run, pure=False)
    stops = np.cumsum(data.chunks[0]).tolist()
    blocks = in_rows(data).to_delayed().ravel()
    tasks = zip(blocks, [0, *stops], stops, strict=False)
    return [run(shared, block, start, stop) for block, start, stop in tasks if start not in skip]


def _run(function: BlockFunction, block: Any, start: int, stop: int) -> Any:
    return function(block, slice(start, stop))


def _shared(value: Any) -> Any:
    """A node of its own, whose name spares dask from hashing all that is in it."""
    import dask

    return dask.delayed(value, name=f"dice-{uuid.uuid4().hex}", traverse=False)


def _compute(results: list[Any], tasks: list[Any], desc: str) -> list[Any]:
    import dask

    with _progress({task.key for task in tasks}, desc):
        return list(dask.compute(*results))


@contextmanager
def _progress(keys: Collection[str], desc: str) -> Iterator[None]:
    """Our progress bar for dask's schedulers in this process; a cluster has its dashboard."""
    from dask.callbacks import Callback

    with _log.progress(total=len(keys), desc=desc, unit="block") as bar:

        def finished(key: Any, *_: Any) -> None:
            if key in keys:
                bar.update()

        with Callback(posttask=finished):
            yield
