"""The one logger and the one progress bar of the package."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, Self, TypeVar

from tqdm.auto import tqdm

from dice import settings
from dice._errors import DiceWarning

P = ParamSpec("P")
R = TypeVar("R")

_logger = logging.getLogger("dice")
#: Lists that collect warnings; a context variable keeps the calls of several threads apart.
_listeners: ContextVar[tuple[list[str], ...]] = ContextVar("listeners", default=())
#: Rewrites messages, for the command line.
_wording: ContextVar[Callable[[str], str] | None] = ContextVar("wording", default=None)
#: The object that the calls of this context are about.
_subject: ContextVar[object] = ContextVar("subject", default=None)
#: Warnings about objects that still live, by their identity (AnnData has no hash).
_said: dict[int, tuple[weakref.ref[object], set[str]]] = {}
#: Seconds between two lines of progress in a log, so that quick stages leave none: a workflow of 900 cells left 13
#: lines, warnings included. A stage of an hour still gets its ten.
BETWEEN_LINES = 5.0


def info(message: str) -> None:
    """Log a decision of a call; shown at ``settings.verbosity >= 2`` or by the user's handler."""
    _logger.info(message)
    if settings.verbosity >= 2:
        tqdm.write(message)


def say(message: str, *, result: bool = False) -> None:
    """Show a message that every user should read; shown at ``settings.verbosity >= 1``.

    It goes to standard error, and in a notebook to standard output, which shows it without alarm. Within `worded`, the
    caller prints a `result`.
    """
    _logger.info(message)
    wording = _wording.get()
    if settings.verbosity >= 1 and not (result and wording is not None):
        text = message if wording is None else wording(message)
        tqdm.write(text, file=sys.stdout if _in_notebook() else sys.stderr)


@contextmanager
def worded(wording: Callable[[str], str]) -> Iterator[None]:
    """Rewrite all messages of a block, for example in the words of the command line."""
    token = _wording.set(wording)
    try:
        yield
    finally:
        _wording.reset(token)


def warn(message: str, *, about: object = None) -> None:
    """Warn the user, pointing at the line that called into dice.

    The same sentence is shown once for each object: `about`, or the subject of the call. It is recorded every time.
    """
    for listener in _listeners.get():
        listener.append(message)
    subject = _subject.get() if about is None else about
    said = set() if subject is None else _said_about(subject)
    if message in said:
        return
    warnings.warn(message, DiceWarning, stacklevel=_depth_outside_package())
    # Not if the user's filters made it an error: that call has failed, and the next one will.
    said.add(message)


def once_per_object(verb: Callable[P, R]) -> Callable[P, R]:
    """Decorate a verb so that its warnings are shown once for each object that is its first argument.

    Warnings of a verb that another one calls belong to the object of the outer call.
    """
    first = next(iter(inspect.signature(verb).parameters))

    @functools.wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _subject.get() is not None:
            return verb(*args, **kwargs)
        token = _subject.set(args[0] if args else kwargs.get(first))
        try:
            return verb(*args, **kwargs)
        finally:
            _subject.reset(token)

    return call


def _said_about(subject: object) -> set[str]:
    """Sentences shown for an object, forgotten with it; for objects without weak references nothing is kept."""
    place = id(subject)
    known = _said.get(place)
    if known is not None and known[0]() is subject:
        return known[1]
    try:
        holder = weakref.ref(subject, lambda _: _said.pop(place, None))
    except TypeError:
        return set()
    _said[place] = holder, set()
    return _said[place][1]


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Collect the warnings of a block, so that its call can store them beside its results."""
    messages: list[str] = []
    token = _listeners.set((*_listeners.get(), messages))
    try:
        yield messages
    finally:
        _listeners.reset(token)


def progress(*, total: int | None, desc: str, unit: str = "it", **kwargs: Any) -> tqdm[Any] | Lines:
    """Progress of a stage, silent at ``settings.verbosity == 0``.

    On a terminal and in a notebook it is a bar that vanishes when done; elsewhere, as in the log of a batch job, lines.
    """
    if _is_watched():
        return tqdm(total=total, desc=desc, unit=unit, disable=settings.verbosity < 1, leave=False, **kwargs)
    return Lines(total, desc, kwargs.get("initial", 0), silent=settings.verbosity < 1)


class Lines:
    """Progress as lines: one for every tenth of the work, those of quick work left out.

    Where the total is not known, lines come ever more rarely.
    """

    def __init__(self, total: int | None, desc: str, initial: int = 0, *, silent: bool = False) -> None:
        self.total, self.desc, self.n, self.silent = total, desc, initial, silent
        self._note, self._first = "", initial
        self._tenth = self._tenths()
        self._start = self._last = time.monotonic()
        self._lines = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines:
            self._write("done")
        self._lines = 0

    def set_description(self, desc: str, refresh: bool = False) -> None:
        self.desc = desc

    def set_postfix(self, **figures: str) -> None:
        self._note = "".join(f", {name} {figure}" for name, figure in figures.items())

    def update(self, n: int = 1) -> None:
        self.n += n
        now, tenth = time.monotonic(), self._tenths()
        due = now - self._last >= max(BETWEEN_LINES, 0 if self.total else self._last - self._start)
        if due and (tenth > self._tenth or not self.total):
            left = (now - self._start) * (self.total - self.n) / max(self.n - self._first, 1) if self.total else 0
            coming = f", about {left:.0f} s left" if left >= BETWEEN_LINES else ""
            self._write(f"{100 * self.n / self.total:.0f} %" if self.total else f"{self.n:,}", coming)
            self._tenth, self._last = tenth, now

    def _tenths(self) -> int:
        return 10 * self.n // self.total if self.total else 0

    def _write(self, how_far: str, coming: str = "") -> None:
        self._lines += 1
        if not self.silent and sys.stderr is not None:
            elapsed = time.monotonic() - self._start
            sys.stderr.write(f"{self.desc}: {how_far} after {elapsed:.0f} s{coming}{self._note}\n")


def next_stage(bar: Any, share: int, name: str) -> None:
    """Report that a share of the work, in units of the bar, is done, and name what comes next."""
    bar.update(share)
    bar.set_description(name)


def _is_watched() -> bool:
    """Whether a progress bar is visible: in a terminal, or in a notebook."""
    return (sys.stderr is not None and sys.stderr.isatty()) or _in_notebook()


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _depth_outside_package() -> int:
    """Stack level of the first caller outside of dice, counted as `warnings.warn` in `warn` does."""
    frame = inspect.currentframe()
    depth = 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "dice":
        frame, depth = frame.f_back, depth + 1
    return max(depth, 1)
