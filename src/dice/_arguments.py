"""Checks of arguments that are plain numbers, words and keys: one sentence with what to pass instead."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from dice._errors import InputError, SlotError

#: Longest key of a slot.
MAX_KEY = 1_000


def number(name: str, value: Any, *, least: float, most: float | None = None) -> float:
    """A finite number that is not too small, or too large."""
    if not is_number(value) or value < least:
        raise InputError(f"{name}={said(value)} is not a number of at least {least}.")
    if most is not None and value > most:
        raise InputError(f"{name}={said(value)} is not between {least} and {most:,}.")
    return float(value)


def whole_number(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number that is not too small."""
    if not is_number(value) or value != int(value) or value < least:
        raise InputError(f"{name}={said(value)} is not a whole number of at least {least}.")
    return int(value)


def is_number(value: Any) -> bool:
    """A finite number; True and False are none."""
    return (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and bool(-1e300 < value < 1e300)
    )


def said(value: Any) -> str:
    """A value as it is shown in a sentence: in one line, and not endless."""
    text = " ".join(ascii(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def choice(name: str, value: Any, options: tuple[Any, ...]) -> Any:
    """One of a few words."""
    if not isinstance(value, str | bool) or value not in options:
        raise InputError(f"There is no {name} {said(value)}: choose one of {list(options)}.")
    return value


def is_key(value: Any) -> bool:
    """Whether files can hold an entry of this name."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY:
        return False
    return not any(character in "/\0" or "\ud800" <= character <= "\udfff" for character in value)


def new_key(name: str, value: Any, example: str) -> str:
    """A name for something that is to be written."""
    if not is_key(value):
        raise InputError(f"{name}={said(value)} cannot name a slot: pass a word, for example {example!r}.")
    return str(value)


def known_key(key: Any, keys: Collection[Any], what: str, where: str) -> str:
    """A key that must be there: of a `what` (a column, a layer) in a slot."""
    if not isinstance(key, str) or key not in keys:
        raise SlotError(f"There is no {what} {said(key)} in {where}; available: {sorted(map(str, keys))[:20]}.")
    return key
