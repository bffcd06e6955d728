"""Atomic writes: a file is replaced at once, or left as it was."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dice._errors import FileError, InputError


def check_folder(path: str | os.PathLike[str]) -> Path:
    """Find out before the work, not after it, that a file cannot be written."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{path!a} is no path: pass a file name, for example 'report.html'.")
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise InputError(f"{str(target)!r} cannot be written: pass a file name in a folder that exists.")
    return target


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name beside `path` to write to, which takes its place only when the block succeeds.

    An error leaves neither a half-written file nor a trace; an existing file stays as it was. (A killed process
    leaves the name beside, which begins with a dot.)
    """
    target = Path(path)
    draft = target.with_name(f".{secrets.token_hex(6)}.{target.name}")
    try:
        yield draft
        with draft.open("rb") as stream:
            os.fsync(stream.fileno())
        draft.replace(target)
    except OSError as error:
        _remove(draft)
        reason = error.strerror or " ".join(str(error).split())
        raise FileError(
            f"{str(target)!r} cannot be written ({reason}): pass a path in a folder that exists and has room."
        ) from error
    except BaseException:
        _remove(draft)
        raise


def _remove(draft: Path) -> None:
    # Where the folder itself is gone, so is the draft; the first error is the one to tell.
    with suppress(OSError):
        draft.unlink()
