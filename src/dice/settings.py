"""Package-wide settings: plain module attributes, read when a call starts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Device to compute on: ``"auto"`` (CUDA if present, otherwise the CPU), ``"cpu"``, ``"cuda"`` or any torch device.
device: str = "auto"

#: Number of cells to process at once. None is about 64 MB of expression. Lazy matrices are processed in their blocks.
chunk_size: int | None = None

#: 0 shows no progress, 1 shows progress and messages, 2 also shows the decisions of each call.
verbosity: int = 1

#: Address of the folder that ready priors are downloaded from. ``DICE_PRIORS_URL`` in the environment sets it as well.
priors_url: str = os.environ.get("DICE_PRIORS_URL", "https://github.com/scdice/dice/releases/download/priors")

__all__ = ["chunk_size", "device", "priors_url", "using", "verbosity"]


def __dir__() -> list[str]:
    return __all__


@contextmanager
def using(**values: Any) -> Iterator[None]:
    """Change settings for a block: ``with dice.settings.using(device="cuda"): ...``."""
    before = {name: globals()[name] for name in values}
    globals().update(values)
    try:
        yield
    finally:
        globals().update(before)
