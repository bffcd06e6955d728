"""Atomic writes: a file or a store is replaced at once, or left as it was."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dice._errors import FileError, InputError
from dice._processes import interrupts

#: Files of which one says that a folder is a store of zarr's, of format 2 or 3.
STORE_FILES = (".zgroup", ".zarray", "zarr.json")
#: What renaming says where another process has just put its own store.
TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
#: Each try is lost to another process that has finished, so this many writers of one store at the same moment are safe.
TRIES = 100
#: Reasons that no reading has: a full disk, a quota, a limit of sizes, and a file system for reading alone.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def check_target(
    path: str | os.PathLike[str], *, store: bool = False, argument: str = "", inputs: Iterable[object] = ()
) -> Path:
    """Find out before the work, not after it, that a file, or a `store` in a folder, cannot be written.

    Rights and mounts can say one thing and the file system do another, so a few bytes are written, and removed. Of the
    `inputs` of a call, none may be the same file: paths, or objects that are backed by a file.
    """
    target = followed(path)
    for source in inputs:
        source = getattr(source, "filename", source)
        if isinstance(source, str | os.PathLike) and same_file(path, source):
            raise InputError(f"{argument}{str(path)!r} is an input of this call and would be lost: name another file.")
    reason = _in_the_way(target, store) or _refusal(target)
    if reason is not None:
        what = "name a store" if store else "pass a file name"
        raise InputError(
            f"{argument}{str(path)!r} cannot be written ({reason}): {what} in a folder that exists and may be written."
        )
    return Path(path)


def _in_the_way(target: Path, store: bool) -> str | None:
    """What is at a place where a file or a store should go, in words; None if nothing is, or what may be replaced."""
    if target.is_symlink():
        return "its links lead in a circle"
    if target.is_dir() and not store:
        return "it is a folder"
    if target.is_file() and store:
        return "it is a file"
    if target.exists() and not target.is_dir() and not target.is_file():
        return "it is a device or a pipe"
    if store and not _may_be_replaced(target):
        return "it is a folder with other files"
    if _is_guarded(target):
        return "it belongs to another user"
    return None


def _refusal(target: Path) -> str | None:
    """Why the file system takes no file beside `target`, in words; None if it does."""
    if not target.parent.is_dir():
        return f"there is no folder {str(target.parent)!r}"
    draft = _beside(target)
    try:
        draft.write_bytes(bytes(4096))
    except OSError as error:
        return _reason(error)
    finally:
        remove(draft)
    return None


def _is_guarded(target: Path) -> bool:
    """Whether a folder for everybody, such as /tmp, keeps a file for its owner: it takes others beside it."""
    if not hasattr(os, "geteuid") or os.geteuid() == 0 or not target.exists():
        return False
    folder = target.parent.stat()
    return bool(folder.st_mode & stat.S_ISVTX) and os.geteuid() not in (folder.st_uid, target.stat().st_uid)


def _may_be_replaced(folder: Path) -> bool:
    """Whether a folder is a store, empty or not there: whoever names any other would lose what is in it."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:
        return True
    return not names or not names.isdisjoint(STORE_FILES)


def followed(path: object) -> Path:
    """Where links lead: what is replaced is the file, not the link to it."""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise InputError(f"A path must be a file name, for example 'report.html', got {path!a}.")
    return Path(os.path.realpath(path))


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Return whether two paths are the same file or store, also through links, or one is inside the other."""
    first, second = followed(one), followed(other)
    if first == second or first in second.parents or second in first.parents:
        return True
    return first.exists() and second.exists() and first.samefile(second)


def check_room(path: str | os.PathLike[str], n_bytes: int) -> None:
    """Do not begin a file that has no room: where a disk is full, HDF5 ends the whole process, after pages of text."""
    free = shutil.disk_usage(followed(path).parent).free
    if free < n_bytes:
        raise FileError(
            f"{str(path)!r} cannot be written (it takes at least {n_bytes / 1e6:.1f} MB, and {free / 1e6:.1f} MB are "
            "free): make room, or pass a path on another disk."
        )


@contextmanager
def atomic(path: str | os.PathLike[str], *, store: bool = False) -> Iterator[Path]:
    """A name beside `path` to write to, which takes its place only when the block succeeds.

    An error leaves neither a half-written file nor a trace; an existing file, or a `store` in a folder, stays as it
    was. (A killed process leaves the name beside, which begins with a dot.)
    """
    target = followed(path)
    draft = _beside(target)
    advice = "pass a path in a folder that exists and has room"
    with interrupts(wait=False) as interrupted, refusals(path, advice):
        if reason := _in_the_way(target, store):
            raise FileError(f"{str(path)!r} cannot be written ({reason}): pass another file name.")
        try:
            yield draft
            if interrupted():  # Before anything is replaced.
                raise KeyboardInterrupt
            if store:
                replace_store(draft, target)
            else:
                _flush(draft)
                draft.replace(target)
        except BaseException:
            remove(draft)
            raise


def _flush(draft: Path) -> None:
    """Have the disk hold what was written; Windows takes no file that was opened for reading alone."""
    with draft.open("r+b") as stream:
        os.fsync(stream.fileno())


@contextmanager
def refusals(path: str | os.PathLike[str], advice: str, only: Container[int] | None = None) -> Iterator[None]:
    """Turn errors of the file system about `path` into one sentence, all of them or `only` some kinds."""
    try:
        yield
    except FileError:
        raise
    except (OSError, RuntimeError) as error:
        # HDF5 fails with a RuntimeError where the disk refuses what it has kept back until the end.
        ours = _hdf5_reason(error) if isinstance(error, RuntimeError) else only is None or error.errno in only
        if not ours:
            raise
        raise FileError(f"{str(path)!r} cannot be written ({_reason(error)}): {advice}.") from error


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
                remove(aside)
    raise FileError(f"{str(target)!r} is replaced by others all the time: name another output.")


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


def remove(draft: Path) -> None:
    """Remove a file or a folder, if it can be: where another error is told, this would be a second one."""
    with suppress(OSError):
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink()
