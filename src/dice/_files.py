"""Atomic writes: a file or a store is replaced as a whole, or stays as it was."""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dice._errors import FileError, InputError
from dice._processes import interrupts

#: Files that mark a folder as a zarr store of format 2 or 3.
STORE_FILES = (".zgroup", ".zarray", "zarr.json")
#: Errors of a rename if another process has just put a store at the same path.
TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
#: Maximum number of tries. A try fails only if another process succeeds, so this many processes may write at once.
TRIES = 100


def check_target(
    path: str | os.PathLike[str], *, store: bool = False, argument: str = "", inputs: Iterable[object] = ()
) -> Path:
    """Check early that a file, or a `store` in a folder, can be written.

    A few bytes are written and removed, because file permissions alone do not show whether writing works. The file must
    not be one of the `inputs` of the call, which are paths or objects backed by a file.
    """
    target = followed(path)
    for source in inputs:
        source = getattr(source, "filename", source)
        if isinstance(source, str | os.PathLike) and same_file(path, source):
            raise InputError(f"{argument}{str(path)!r} is an input of this call and would be lost: name another file.")
    reason = _in_the_way(target, store) or _refusal(target)
    if reason is not None:
        what = "name a store" if store else "pass a file name"
        raise InputError(f"{argument}{str(path)!r} cannot be written ({reason}): {what} in a writable folder.")
    return Path(path)


def _in_the_way(target: Path, store: bool) -> str | None:
    """Return the reason why a file or a store must not be put at `target`, or None."""
    obstacles = {
        "its links lead in a circle": target.is_symlink(),
        "it is a folder": target.is_dir() and not store,
        "it is a file": target.is_file() and store,
        "it is a device or a pipe": target.exists() and not target.is_dir() and not target.is_file(),
        "it is a folder with other files": store and not _may_be_replaced(target),
    }
    return next((reason for reason, found in obstacles.items() if found), None)


def _refusal(target: Path) -> str | None:
    """Return the reason why the file system does not accept a file beside `target`, or None."""
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


def _may_be_replaced(folder: Path) -> bool:
    """Return whether a folder is a store, empty or missing. Other folders must not be lost."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:
        return True
    return not names or not names.isdisjoint(STORE_FILES)


def followed(path: object) -> Path:
    """Follow links to the file itself, so that the file is replaced instead of the link."""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise InputError(f"A path must be a file name, for example 'report.html', got {path!a}.")
    return Path(os.path.realpath(path))


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Return whether two paths, also through links, are the same file or store, or one is inside the other."""
    first, second = followed(one), followed(other)
    if first == second or first in second.parents or second in first.parents:
        return True
    try:
        return first.samefile(second)
    except OSError:  # A path does not exist, or is in a folder without access.
        return False


def check_room(path: str | os.PathLike[str], n_bytes: int) -> None:
    """Check that there is room for a file, because HDF5 ends the process if a disk is full."""
    free = shutil.disk_usage(followed(path).parent).free
    if free < n_bytes:
        raise FileError(
            f"{str(path)!r} needs {n_bytes / 1e6:.1f} MB or more, but {free / 1e6:.1f} MB are free: make room."
        )


@contextmanager
def atomic(path: str | os.PathLike[str], *, store: bool = False) -> Iterator[Path]:
    """Yield a path beside `path` to write to. It takes the place of `path` if the block succeeds.

    After an error nothing has changed. A killed process leaves the other file, whose name begins with a dot.
    """
    target = followed(path)
    draft = _beside(target)
    with interrupts(wait=False) as interrupted, _refusals(path):
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
    """Write buffers to the disk. Windows refuses this for files that were opened for reading."""
    with draft.open("r+b") as stream:
        os.fsync(stream.fileno())


@contextmanager
def _refusals(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the file system about `path` into one sentence."""
    try:
        yield
    except FileError:
        raise
    except (OSError, RuntimeError) as error:
        # HDF5 raises a RuntimeError if the disk refuses its last buffers.
        if isinstance(error, RuntimeError) and not _hdf5_reason(error):
            raise
        advice = "pass a path in a folder that exists and has room"
        raise FileError(f"{str(path)!r} cannot be written ({_reason(error)}): {advice}.") from error


def replace_store(draft: Path, target: Path) -> None:
    """Put a complete store at `target`, in place of another store.

    Folders cannot be exchanged in one step. If several processes write the same store, the store of one of them is kept
    as a whole. If a process is interrupted, the old store is restored.
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
    raise FileError(f"{str(target)!r} is constantly replaced by other processes: pass another path.")


def _beside(target: Path) -> Path:
    return target.with_name(f".{secrets.token_hex(6)}.{target.name}")


def _reason(error: Exception) -> str:
    """Return the reason of the file system, without the addresses and flags of HDF5."""
    number = getattr(error, "errno", None)
    if number is not None:
        return os.strerror(number)
    return _hdf5_reason(error) or " ".join(str(error).split())


def _hdf5_reason(error: Exception) -> str | None:
    found = re.findall(r"error message = '([^']+)'", str(error))
    return found[-1] if found else None


def remove(draft: Path) -> None:
    """Remove a file or a folder if possible, without a second error."""
    shutil.rmtree(draft, ignore_errors=True)  # does nothing to a file
    with suppress(OSError):
        draft.unlink()
