"""The logger, the warnings and the progress bar of the package."""

import functools
import inspect
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from tqdm.auto import tqdm

from dice import settings
from dice._errors import DiceWarning

T = TypeVar("T")

_logger = logging.getLogger("dice")
#: Lists that collect warnings. Context variables keep the calls of several threads apart.
_listeners: ContextVar[tuple[list[str], ...]] = ContextVar("listeners", default=())
#: Warnings that were shown.
_shown: set[str] = set()
#: Rewrites messages, for the command line.
_wording: ContextVar[Callable[[str], str] | None] = ContextVar("wording", default=None)
#: Whether a call is a step of a larger call, which has already announced its cost.
within_call: ContextVar[bool] = ContextVar("within_call", default=False)
#: Minutes and GB from which a call announces its cost.
MUCH = 0.5, 1.0
#: CPU seconds and MB of memory for 1,000 cells with 3,000 genes. Seconds were measured on 5,000 to 15,000 simulated
#: cells, memory on 200,000 cells for labels and clusters, on 15,000 for training. Memory for denoising is a high guess.
COSTS = {
    "denoise": (0.06, 1),
    "transfer_labels": (0.11, 9),
    "cluster": (0.97, 19),
    "train_prior": (1.24, 40),
    "annotate": (1.4, 34),
}
#: Seconds between two lines of progress in a log file. Quick stages leave no line.
BETWEEN_LINES = 30.0


@contextmanager
def within(variable: ContextVar[T], value: T) -> Iterator[T]:
    """Set a context variable for a block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def info(message: str) -> None:
    """Log a decision of a call. It is shown at ``settings.verbosity >= 2``."""
    _logger.info(message)
    if settings.verbosity >= 2:
        tqdm.write(message)


def say(message: str, *, result: bool = False) -> None:
    """Log a message that every user should read. It is shown at ``settings.verbosity >= 1``.

    Messages go to standard error. In a notebook they go to standard output, because standard error looks like an error.
    A `result` is not shown within `worded`, where the caller prints results, or in steps of a larger call, which prints
    a summary.
    """
    _logger.info(message)
    wording = _wording.get()
    if settings.verbosity >= 1 and not (result and (wording is not None or within_call.get())):
        text = message if wording is None else wording(message)
        tqdm.write(text, file=sys.stdout if _in_notebook() else sys.stderr)


def say_cost(step: str, n_cells: int) -> None:
    """Announce time and memory at the start of a call on many cells. Steps of a larger call announce nothing."""
    seconds, megabytes = COSTS[step]
    minutes, gigabytes = n_cells * seconds / 60_000, n_cells * megabytes / 1e6
    if (minutes >= MUCH[0] or gigabytes >= MUCH[1]) and not within_call.get():
        say(f"{n_cells:,} cells take about {minutes:.1f} minutes and {gigabytes:.1f} GB on an idle core.")


#: Rewrite all messages of a block, for example in the words of the command line.
worded = functools.partial(within, _wording)


def warn(message: str) -> None:
    """Warn the user, and point to the line that called dice. All running calls record the message.

    A message is shown once per session, or once per call if the user's filters always show warnings. (Python's own
    filter "once" forgets when any package changes a filter.)
    """
    listeners = _listeners.get()
    filters = (kind for kind, text, category, *_ in warnings.filters if not text and issubclass(DiceWarning, category))
    action = next(filters, "default")
    repeated = any(message in listener for listener in listeners) or (message in _shown and action != "always")
    for listener in listeners:
        listener.append(message)
    if not repeated:
        warnings.warn(message, DiceWarning, stacklevel=_depth_outside_package())
        # If a filter turns the warning into an error, this line is not reached, and the next call fails again.
        if action != "ignore":
            _shown.add(message)


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Collect the warnings of a block, so that a call can store them beside its results."""
    messages: list[str] = []
    with within(_listeners, (*_listeners.get(), messages)):
        yield messages


class _Lines:
    """File for progress bars without a terminal: a plain line on standard error every half minute."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def write(self, text: str) -> None:
        now = time.monotonic()
        # A bar within a bar writes control characters that move the cursor.
        shown = bool(text.strip()) and "\x1b" not in text
        if shown and now - self.last >= BETWEEN_LINES and sys.stderr is not None:
            self.last = now
            sys.stderr.write(f"{text.strip()}\n")

    def flush(self) -> None:
        """Do nothing: lines are not buffered."""


def progress(*, total: int | None, desc: str, unit: str = "it", **kwargs: Any) -> "tqdm[Any]":
    """Return the progress bar of a stage: lines in a log file, and nothing at ``settings.verbosity == 0``."""
    if not (_in_notebook() or (sys.stderr is not None and sys.stderr.isatty())):
        share = "{percentage:.0f} % after {elapsed}, {remaining} left" if total else "{n} after {elapsed}"
        kwargs |= {"file": _Lines(), "bar_format": f"{{desc}}{share}{{postfix}}"}
    return tqdm(total=total, desc=f"{desc}: ", unit=unit, disable=settings.verbosity < 1, leave=False, **kwargs)


def next_stage(bar: Any, share: int, name: str) -> None:
    """Advance the bar by the finished share of the work, and name the next stage."""
    bar.update(share)
    bar.set_description(name)


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _depth_outside_package() -> int:
    """Return the stack level of the first caller outside of dice, as `warnings.warn` in `warn` counts it.

    contextlib and functools are skipped too, because they call decorated functions and cached properties of dice.
    """
    frame, depth, inner = inspect.currentframe(), 0, ("dice", "contextlib", "functools")
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in inner:
        frame, depth = frame.f_back, depth + 1
    return max(depth, 1)
