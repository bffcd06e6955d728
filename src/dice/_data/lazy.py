"""Run functions on the blocks of dask arrays.

dask calls the functions in threads or on the user's cluster. A function and its data (such as a prior) are sent to each
worker once.
"""

import operator
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from dice import _log
from dice._data.sources import Numbered, add_up, checked, rows_of

T = TypeVar("T")
#: Number of partial sums that are added up at a time.
FAN_IN = 4


def ranges(data: Any) -> list[slice]:
    """Return the cells of every block."""
    stops = np.cumsum(data.chunks[0]).tolist()
    return [slice(start, stop) for start, stop in pairwise([0, *stops])]


def computed(data: Any) -> Iterator[tuple[Any, slice]]:
    """Yield every block, as an object to slice rows from, with its cells. Two blocks are never held at once."""
    return ((rows_of(checked(data[rows].compute())), rows) for rows in ranges(data))


def on_block(gather: Callable[[Numbered], T], cut: Callable[[Any, slice], Numbered], block: Any, rows: slice) -> T:
    """Return the result of `gather` for the chunks of one block. A worker calls this."""
    return gather(cut(rows_of(checked(block)), rows))


def run(data: Any, function: Callable[[Any, slice], T], *, desc: str, summed: bool = False) -> list[T]:
    """Return ``function(block, rows)`` for every block of cells with all genes, in order, or the sum of all results.

    The sum does not depend on the number of workers. Progress is shown by schedulers in this process. A cluster has its
    own dashboard.
    """
    import dask
    from dask.callbacks import Callback

    # Use a random name. Otherwise dask would hash the whole function and its data to find a name.
    shared = dask.delayed(function, name=f"dice-{uuid.uuid4().hex}", traverse=False)
    call, add = (dask.delayed(step, pure=False) for step in (operator.call, add_up))
    blocks = data.rechunk({1: -1}).to_delayed().ravel()
    results = [call(shared, block, rows) for block, rows in zip(blocks, ranges(data), strict=True)]
    keys = {result.key for result in results}
    while summed and len(results) > 1:
        results = [add(results[first : first + FAN_IN]) for first in range(0, len(results), FAN_IN)]
    with _log.progress(total=len(keys), desc=desc, unit="block") as bar:

        def finished(key: Any, *_: Any) -> None:
            if key in keys:
                bar.update()

        with Callback(posttask=finished):
            return list(dask.compute(*results))
