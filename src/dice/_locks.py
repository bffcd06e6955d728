"""One process at a time."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dice._errors import InputError
from dice._files import remove


@contextmanager
def held(output: Path) -> Iterator[None]:
    """Keep other processes from the same `output` while a block works on it over a long time.

    The lock is the file system's, so that of a killed process is gone with it; where there are no locks, nobody is
    kept out.
    """
    lock = output.with_name(f".{output.name}.lock")
    with lock.open("a") as stream:
        if not _lock(stream.fileno()) or not _is(lock, stream.fileno()):
            raise InputError(
                f"{str(output)!r} is being written by another process: wait for it, or name another output."
            )
        try:
            yield
        finally:
            # Whoever has opened it meanwhile finds that it is gone; Windows does not let go of an open file.
            if sys.platform != "win32":
                remove(lock)
    if sys.platform == "win32":
        remove(lock)


def _lock(descriptor: int) -> bool:
    """Whether an open file is ours alone, or cannot be anybody's."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True


def _is(path: Path, descriptor: int) -> bool:
    """Whether a file that is open is still the one at `path`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
