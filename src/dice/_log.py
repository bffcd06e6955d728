"""The one logger and the one progress bar of the package."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm.auto import tqdm

from dice import settings
from dice._errors import DiceWarning

_logger = logging.getLogger("dice")
#: Lists that want to hear of warnings; a context variable keeps the calls of several threads apart.
_listeners: ContextVar[tuple[list[str], ...]] = ContextVar("listeners", default=())
_wording: ContextVar[Callable[[str], str] | None] = ContextVar("wording", default=None)


def info(message: str) -> None:
    """Say what a call decided; shown at ``settings.verbosity >= 2`` or by the user's own handler."""
    _logger.info(message)
    if settings.verbosity >= 2:
        tqdm.write(message)


def say(message: str, *, result: bool = False) -> None:
    """Say what everybody should read once; shown at ``settings.verbosity >= 1``.

    It goes to standard error, as results do to standard output; in a notebook to where results go, without alarm. Who
    calls with words of his own (`worded`) shows a `result` himself.
    """
    _logger.info(message)
    wording = _wording.get()
    if settings.verbosity >= 1 and not (result and wording is not None):
        text = message if wording is None else wording(message)
        tqdm.write(text, file=sys.stdout if "ipykernel" in sys.modules else sys.stderr)


@contextmanager
def worded(wording: Callable[[str], str]) -> Iterator[None]:
    """Within a block, say everything in other words: those of the command line."""
    token = _wording.set(wording)
    try:
        yield
    finally:
        _wording.reset(token)


def warn(message: str) -> None:
    """Warn the user, pointing at the line that called into dice."""
    for listener in _listeners.get():
        listener.append(message)
    warnings.warn(message, DiceWarning, stacklevel=_depth_outside_package())


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Collect the warnings of a block, so that its call can store them beside its results."""
    messages: list[str] = []
    token = _listeners.set((*_listeners.get(), messages))
    try:
        yield messages
    finally:
        _listeners.reset(token)


def progress(*, total: int | None, desc: str, unit: str = "it", **kwargs: Any) -> tqdm[Any]:
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
