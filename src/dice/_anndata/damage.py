"""Files that end too early, or vanish while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from dice._errors import DiceError, FileError


@contextmanager
def readable() -> Iterator[None]:
    """A file that ends too early or has vanished is told in one sentence, whatever the library that reads it says."""
    try:
        yield
    except DiceError:
        raise
    except (OSError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FileError(f"The matrix cannot be read ({reason}): check that its file is whole.") from error


def check_whole(data: Any) -> None:
    """HDF5 reads zeros beyond the end of a file that became shorter: that is found out before."""
    stored = getattr(data, "group", data)
    if isinstance(stored, h5py.Dataset | h5py.Group) and Path(stored.file.filename).is_file():
        expected, there = stored.file.id.get_filesize(), Path(stored.file.filename).stat().st_size
        if there < expected:
            raise FileError(
                f"{stored.file.filename!r} has {there} bytes left of {expected} since it was opened: read it again."
            )
