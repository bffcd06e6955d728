"""Files that are either whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name beside `path` to write to, which takes its place only when the block succeeds.

    An error leaves neither a half-written file nor a trace; an existing file stays as it was.
    """
    target = Path(path)
    draft = target.with_name(f".{secrets.token_hex(6)}.{target.name}")
    try:
        yield draft
        with draft.open("rb") as stream:
            os.fsync(stream.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
