"""How many threads of the process work: what numba does to them is undone, and small networks get one."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Train small networks on one thread.

    Their matrices are so small that a second thread hardly helps, and where another process keeps its core busy, the
    first one spins until the second gets its turn: seven times slower, and up to thirty times with two of them.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
