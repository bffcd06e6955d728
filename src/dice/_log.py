"""The one logger and the one progress bar of the package."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from tqdm.auto import tqdm

from dice import settings
from dice._errors import DiceWarning

_logger = logging.getLogger("dice")


def info(message: str) -> None:
    """Say what a call decided; shown at ``settings.verbosity >= 2`` or by the user's own handler."""
    _logger.info(message)
    if settings.verbosity >= 2:
        tqdm.write(message)


def warn(message: str) -> None:
    """Warn the user, pointing at the line that called into dice."""
    warnings.warn(message, DiceWarning, stacklevel=_depth_outside_package())


def progress(*, total: int, desc: str, unit: str = "it", **kwargs: Any) -> tqdm[Any]:
    """Progress bar that vanishes when done and is silent at ``settings.verbosity == 0``."""
    return tqdm(total=total, desc=desc, unit=unit, disable=settings.verbosity < 1, leave=False, **kwargs)


def _depth_outside_package() -> int:
    """Stack level of the first caller outside of dice, counted as `warnings.warn` in `warn` does."""
    import inspect

    frame = inspect.currentframe()
    depth = 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "dice":
        frame, depth = frame.f_back, depth + 1
    return max(depth, 1)
