"""Control threads and interrupts of the process."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


@contextmanager
def openmp_threads_kept() -> Iterator[None]:
    """Restore the number of OpenMP threads after numba has run.

    numba sets this number for the whole process when it starts its threads. If a user allows fewer threads, by
    ``OMP_NUM_THREADS`` or ``torch.set_num_threads``, the next training would be many times slower.
    """
    import torch  # noqa: F401 - only numbers of libraries that are loaded can be restored
    from threadpoolctl import threadpool_limits

    with threadpool_limits(user_api="openmp"):
        yield


class _Limited:
    """Number of calls that limit torch to one thread, and the number of threads before the first of them."""

    lock, calls, before = Lock(), 0, 1


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Limit torch to one thread, for small networks and regressions.

    A second thread hardly helps small matrices, and if another process keeps its core busy, the first one waits for it:
    on two cores with a load of 10, a training was seven times slower. Several threads of the user may call this at the
    same time.
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
    """Notice Ctrl-C within a block, and yield a function that returns whether it was pressed.

    With `wait`, the first Ctrl-C does not stop the block. The block calls the function and stops itself, so that its
    state is kept. A second Ctrl-C stops the block at once. Without `wait`, Ctrl-C stops the block and is remembered,
    because Python loses an interrupt that is raised in a callback. A signal handler of the user is not replaced.
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
