"""Seconds and memory of calls; needs nothing but Python, as other tools are timed in environments of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

#: Seconds by the clock, or of the processor where DICE_CPU is set, for a machine that other programs use.
now = time.process_time if os.environ.get("DICE_CPU") else time.perf_counter
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def timed(function: Callable[[], object], repeats: int = 3) -> float:
    """Fastest of a few calls, in seconds."""
    times = []
    for _ in range(repeats):
        start = now()
        function()
        times.append(now() - start)
    return min(times)


def extra_memory(function: Callable[[], object]) -> float:
    """How far a call raises the process above the memory that it had, in MB; not a number where there is no Linux."""
    if not RESET.exists():
        function()
        return float("nan")
    RESET.write_text("5")  # the kernel forgets the peak so far
    before = _megabytes("VmRSS")
    function()
    return _megabytes("VmHWM") - before


def _megabytes(name: str) -> float:
    return int(STATUS.read_text().split(f"{name}:")[1].split()[0]) / 1024


class Clock:
    """Collects what the tasks of one tool cost."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def __call__(self, task: str, function: Callable[[], object], *, repeats: int = 1, share: float = 1.0) -> None:
        """Call `function`, which does a `share` of the task; time is extrapolated, memory is not."""
        seconds = []
        extra = extra_memory(lambda: seconds.append(timed(function, repeats)))
        self.rows.append({"task": task, "seconds": seconds[0] / share, "extra MB": extra})
