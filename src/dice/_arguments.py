"""Checks of arguments: each returns what it was given in one form, or says in one sentence what to pass instead."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from dice._errors import InputError, SlotError
from dice._types import Floats

#: Longest key of a slot.
MAX_KEY = 1_000


def number(name: str, value: Any, *, least: float, most: float | None = None) -> float:
    """A finite number that is not too small, or too large."""
    if not is_number(value) or value < least:
        raise InputError(f"`{name}` must be a number of at least {least}, got {said(value)}.")
    if most is not None and value > most:
        raise InputError(f"`{name}` must be a number from {least} to {most:,}, got {said(value)}.")
    return float(value)


def share(name: str, value: Any) -> float:
    """A number above 0 and below 1."""
    if not is_number(value) or not 0 < value < 1:
        raise InputError(f"`{name}` must be a number between 0 and 1, got {said(value)}.")
    return float(value)


def whole_number(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number that is not too small."""
    if not is_number(value) or value != int(value) or value < least:
        raise InputError(f"`{name}` must be a whole number of at least {least}, got {said(value)}.")
    return int(value)


def is_number(value: Any) -> bool:
    """A finite number; True and False are none."""
    numeric = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return numeric and bool(-1e300 < value < 1e300)


def seed(value: Any) -> int:
    """A `random_state` as a whole number; one of numpy's generators gives it by one draw of 63 bits."""
    if isinstance(value, np.random.Generator):
        return int(value.integers(2**63))
    if isinstance(value, np.random.RandomState):
        return int(value.randint(2**63, dtype=np.uint64))
    if not is_number(value) or value != int(value) or value < 0:
        raise InputError(
            f"`random_state` must be a whole number of at least 0 or a numpy.random.Generator, got {said(value)}."
        )
    return int(value)


def short_seed(value: int, bits: int = 32) -> int:
    """A seed for libraries that take few bits; small ones stay as they are."""
    return value % 2**bits


def said(value: Any) -> str:
    """A value as it is shown in a sentence: in one line, and not endless."""
    text = " ".join(ascii(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def choice(name: str, value: Any, options: tuple[Any, ...]) -> Any:
    """One of a few words, or yes and no."""
    if not isinstance(value, str | bool | np.bool_) or value not in options:
        raise InputError(f"`{name}` must be one of {list(options)}, got {said(value)}.")
    return value


def is_text(value: Any, longest: int) -> bool:
    """Whether this is text that files can hold: no surrogates, which have no bytes, and no null characters."""
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def is_key(value: Any) -> bool:
    """Whether files can hold an entry of this name."""
    return is_text(value, MAX_KEY) and value != "" and "/" not in value


def new_key(name: str, value: Any, example: str) -> str:
    """A name for something that is to be written."""
    if not is_key(value):
        raise InputError(f"`{name}` must be a word that can name a slot, such as {example!r}, got {said(value)}.")
    return str(value)


def known_key(key: Any, keys: Collection[Any], what: str, where: str) -> str:
    """A key that must be there: of a `what` (a column, a layer) in a slot."""
    if not isinstance(key, str) or key not in keys:
        raise SlotError(f"There is no {what} {said(key)} in {where}; available: {sorted(map(str, keys))[:20]}.")
    return key


def as_embedding(values: Any) -> Floats:
    """A finite float64 array of the shape (cells, dimensions)."""
    if hasattr(values, "toarray"):  # sparse; scipy takes long to import, and everything imports this module
        values = values.toarray()
    try:
        embedding = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The embedding must be a numeric array, not {type(values).__name__}: "
            "pass for example adata.obsm['X_dice']."
        ) from error
    if embedding.ndim != 2 or embedding.shape[1] == 0:
        raise InputError(
            f"The embedding must have the shape (cells, dimensions), not {embedding.shape}: pass a 2-D array, for "
            "posterior samples their mean over axis 1."
        )
    broken = np.flatnonzero(~np.isfinite(embedding).all(axis=1))
    if broken.size:
        raise InputError(
            f"The embedding is NaN or infinite in {broken.size} of {len(embedding)} cells (the first is row "
            f"{broken[0]}): remove these cells."
        )
    return embedding
