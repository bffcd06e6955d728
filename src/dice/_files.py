"""Atomic writes: a file or a store is replaced at once, or left as it was."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dice._errors import FileError, InputError

#: Files of which one says that a folder is a store of zarr's, of format 2 or 3.
STORE_FILES = (".zgroup", ".zarray", "zarr.json")
#: What renaming says where another process has just put its own store.
TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
#: Each try is lost to another process that has finished, so this many writers of one store at the same moment are safe.
TRIES = 100


def check_target(path: str | os.PathLike[str], *, store: bool = False, argument: str = "") -> Path:
    """Find out before the work, not after it, that a file, or a `store` in a folder, cannot be written.

    Rights and mounts can say one thing and the file system do another, so a few bytes are written, and removed.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{path!a} is no path: pass a file name, for example 'report.html'.")
    reason = _obstacle(followed(path), store)
    if reason is not None:
        what = "name a store" if store else "pass a file name"
        raise InputError(
            f"{argument}{str(path)!r} cannot be written ({reason}): {what} in a folder that exists and may be written."
        )
    return Path(path)


def _obstacle(target: Path, store: bool) -> str | None:
    """What stands in the way of a file or a store, in words; None if nothing does."""
    if target.is_symlink():
        return "its links lead in a circle"
    if target.is_dir() and not store:
        return "it is a folder"
    if target.is_file() and store:
        return "it is a file"
    if store and not _may_be_replaced(target):
        return "it is a folder with other files"
    if not target.parent.is_dir():
        return f"there is no folder {str(target.parent)!r}"
    draft = _beside(target)
    try:
        draft.write_bytes(bytes(4096))
    except OSError as error:
        return _reason(error)
    finally:
        _remove(draft)
    return None


def _may_be_replaced(folder: Path) -> bool:
    """Whether a folder is a store, empty or not there: whoever names any other would lose what is in it."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:
        return True
    return not names or not names.isdisjoint(STORE_FILES)


def followed(path: str | os.PathLike[str]) -> Path:
    """Where links lead: what is replaced is the file, not the link to it."""
    return Path(os.path.realpath(path))


@contextmanager
def atomic(path: str | os.PathLike[str], *, store: bool = False) -> Iterator[Path]:
    """A name beside `path` to write to, which takes its place only when the block succeeds.

    An error leaves neither a half-written file nor a trace; an existing file, or a `store` in a folder, stays as it
    was. (A killed process leaves the name beside, which begins with a dot.)
    """
    target = followed(path)
    draft = _beside(target)
    try:
        yield draft
        if store:
            replace_store(draft, target)
        else:
            with draft.open("rb") as stream:
                os.fsync(stream.fileno())
            draft.replace(target)
    except (OSError, RuntimeError) as error:
        _remove(draft)
        # HDF5 fails with a RuntimeError where the disk refuses what it has kept back until the end.
        if isinstance(error, RuntimeError) and not _hdf5_reason(error):
            raise
        raise FileError(
            f"{str(path)!r} cannot be written ({_reason(error)}): pass a path in a folder that exists and has room."
        ) from error
    except BaseException:
        _remove(draft)
        raise


def replace_store(draft: Path, target: Path) -> None:
    """Put a whole store where another one may be, which makes room at the last moment.

    Folders cannot be exchanged at once. Where several processes do this, one whole store is there in the end; where
    one is interrupted, the old store goes back.
    """
    for _ in range(TRIES):
        aside = _beside(target)
        try:
            with suppress(FileNotFoundError):
                target.rename(aside)
            draft.rename(target)
            return
        except OSError as error:
            if error.errno not in TAKEN:
                raise
        finally:
            if not target.exists():
                with suppress(OSError):
                    aside.rename(target)
            if target.exists():
                _remove(aside)
    raise FileError(f"{str(target)!r} is replaced by others all the time: name another output.")


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
                _remove(lock)
    if sys.platform == "win32":
        _remove(lock)


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


def _beside(target: Path) -> Path:
    return target.with_name(f".{secrets.token_hex(6)}.{target.name}")


def _reason(error: Exception) -> str:
    """Why the file system refuses, in its own words: those of HDF5 fill a screen with addresses and flags."""
    number = getattr(error, "errno", None)
    if number is not None:
        return os.strerror(number)
    return _hdf5_reason(error) or " ".join(str(error).split())


def _hdf5_reason(error: Exception) -> str | None:
    found = re.findall(r"error message = '([^']+)'", str(error))
    return found[-1] if found else None


def _remove(draft: Path) -> None:
    # Where the folder itself is gone, so is the draft; the first error is the one to tell.
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
        return
    with suppress(OSError):
        draft.unlink()
