"""Threads and interrupts of the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


@contextmanager
def openmp_threads_kept() -> Iterator[None]:
    """Put the number of OpenMP threads back after numba has run.

    When numba starts its threads, it sets their number for the whole process, torch's included; where
    a user allows fewer (``OMP_NUM_THREADS``, ``torch.set_num_threads``), the next training would be many
    times slower.
    """
    from threadpoolctl import ThreadpoolController

    before = {lib.filepath: lib.num_threads for lib in ThreadpoolController().select(user_api="openmp").lib_controllers}
    try:
        yield
    finally:
        for lib in ThreadpoolController().select(user_api="openmp").lib_controllers:
            wanted = before.get(lib.filepath, _allowed())
            if wanted is not None and wanted != lib.num_threads:
                lib.set_num_threads(wanted)


def _allowed() -> int | None:
    """Threads that the environment grants to a library that was loaded meanwhile."""
    value = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return int(value) if value.isdigit() and int(value) > 0 else None


class _Limited:
    """Calls that hold torch to one thread at this moment, and how many threads there were before the first of them."""

    lock, calls, before = Lock(), 0, 1


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Train small networks and fit regressions on one thread.

    Their matrices are so small that a second thread hardly helps, and where another process keeps its core busy, the
    first one spins until the second gets its turn. On two cores with a load of 10, a training was seven times slower,
    and up to thirty times with two of them; the regression of 5,000 cells on 50 latents took 2 seconds in place of
    0.05, and that on 500 genes 1.9 in place of 0.6. Threads of the user may do so at the same time: the last number
    that was set is the one from before all of them.
    """
    import torch

    with _Limited.lock:
        if not _Limited.calls:
            _Limited.before = torch.get_num_threads()
        _Limited.calls += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _Limited.lock:
            _Limited.calls -= 1
            torch.set_num_threads(_Limited.before)


@contextmanager
def interrupts(*, wait: bool) -> Iterator[Callable[[], bool]]:
    """Notice Ctrl-C within a block; what is yielded tells whether it came.

    With `wait` the block goes on until it asks, so that its state can be kept; a second Ctrl-C does not wait. Without,
    it ends the block as ever, but is remembered: Python prints and forgets one that lands in a callback of its own.
    Only where Ctrl-C does what Python makes it do: a handler of the user's is left alone.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    asked: list[int] = []

    def notice(number: int, frame: object) -> None:
        asked.append(number)
        if not wait:
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, notice)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
