"""Ctrl-C that waits, and Ctrl-C that is not forgotten."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
