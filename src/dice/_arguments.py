"""Check arguments. Each check returns the value in one form, or raises an error that says what to pass.

:func:`as_plain` and :func:`from_plain` convert arguments to values that files can hold, and back.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from dice._errors import InputError, SlotError
from dice._types import Floats

#: Maximum length of the key of a slot.
MAX_KEY = 1_000


def number(name: str, value: Any, *, least: float, most: float | None = None) -> float:
    """Return a finite number from `least` to `most`."""
    if not is_number(value) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        raise InputError(f"`{name}` must be a number {bounds}, got {said(value)}.")
    return float(value)


def share(name: str, value: Any) -> float:
    """Return a number above 0 and below 1."""
    if not is_number(value) or not 0 < value < 1:
        raise InputError(f"`{name}` must be a number between 0 and 1, got {said(value)}.")
    return float(value)


def whole_number(name: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number of at least `least`."""
    if not is_number(value) or value != int(value) or value < least:
        raise InputError(f"`{name}` must be a whole number of at least {least}, got {said(value)}.")
    return int(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number. True and False are not numbers."""
    # numpy warns if it compares a float32 with a number that float32 cannot hold.
    value = value.item() if isinstance(value, np.number) else value
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool) and bool(-1e300 < value < 1e300)


def seed(value: Any) -> int:
    """Return a `random_state` as a whole number. A NumPy generator draws the number, and None draws a new number."""
    value = np.random.default_rng() if value is None else value
    if isinstance(value, np.random.Generator):
        return int(value.integers(2**63))
    if isinstance(value, np.random.RandomState):
        return int(value.randint(2**63, dtype=np.uint64))
    if not is_number(value) or value != int(value) or value < 0:
        raise InputError(f"`random_state` must be a non-negative whole number or a NumPy generator, got {said(value)}.")
    return int(value)


def short_seed(value: int, bits: int = 32) -> int:
    """Return a seed for libraries that accept fewer bits."""
    return value % 2**bits


def said(value: Any) -> str:
    """Return a value as text for an error: one line of at most 80 characters."""
    text = " ".join(ascii(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def choice(name: str, value: Any, options: tuple[Any, ...]) -> Any:
    """Return a value if it is one of the options, which are words, True or False."""
    if not isinstance(value, str | bool | np.bool_) or value not in options:
        raise InputError(f"`{name}` must be one of {list(options)}, got {said(value)}.")
    return value


def settle(settings: Any, **values: Any) -> None:
    """Set fields of a frozen object to their checked values."""
    for name, value in values.items():
        object.__setattr__(settings, name, value)


def is_text(value: Any, longest: int) -> bool:
    """Return whether this is text that files can hold, without surrogates and null characters."""
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def is_key(value: Any) -> bool:
    """Return whether files can hold an entry with this name."""
    return is_text(value, MAX_KEY) and value != "" and "/" not in value


def new_key(name: str, value: Any, example: str) -> str:
    """Return the key of a slot to write, or raise an error if files cannot hold the key."""
    if not is_key(value):
        raise InputError(f"`{name}` must be a non-empty name without '/', such as {example!r}, got {said(value)}.")
    return str(value)


def known_key(key: Any, keys: Collection[Any], what: str, where: str) -> str:
    """Return a key if it is one of the `keys`. `what` and `where` are words for the error message."""
    if not isinstance(key, str) or key not in keys:
        raise SlotError(f"There is no {what} {said(key)} in {where}; available: {sorted(map(str, keys))[:20]}.")
    return key


def as_embedding(values: Any) -> Floats:
    """Return a finite float64 array of shape (cells, dimensions)."""
    if hasattr(values, "nnz"):  # sparse; scipy takes long to import, and everything imports this module
        if math.prod(values.shape) > max(2**27, 100 * values.nnz):
            raise InputError(f"The embedding must be dense, got {values.nnz:,} values in the shape {values.shape}.")
        values = values.toarray()
    try:
        embedding = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        found = type(values).__name__
        raise InputError(f"The embedding must be numeric, as adata.obsm['X_dice'] is, got a {found}.") from error
    if embedding.ndim != 2 or embedding.shape[1] == 0:
        hint = "take the mean over axis 1" if embedding.ndim == 3 else "pass a 2-D array"
        raise InputError(f"The embedding must have the shape (cells, dimensions), got {embedding.shape}: {hint}.")
    broken = np.flatnonzero(~np.isfinite(embedding).all(axis=1))
    if broken.size:
        raise InputError(f"The embedding must be finite, got NaN or inf in rows {broken[:5].tolist()}: remove them.")
    return embedding


def as_plain(value: Any) -> Any:
    """Return arguments in a form that files can hold.

    An object becomes its name and fields, a function becomes its name, and None is left out.
    """
    if is_dataclass(value) and not isinstance(value, type):
        named = {item.name: getattr(value, item.name) for item in fields(value)}
        return as_plain({"name": type(value).__name__, **named})
    if isinstance(value, Mapping):
        return {name: as_plain(entry) for name, entry in value.items() if entry is not None}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple) and all(isinstance(item, int | float) for item in value):
        return [float(item) for item in value]
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return value if isinstance(value, bool | int | float | str) else str(value)


def from_plain(call: Mapping[str, Any], classes: Mapping[str, type]) -> dict[str, Any]:
    """Return the arguments of a stored call. `classes` are the classes of settings objects that may occur."""
    restored: dict[str, Any] = {}
    for name, value in call.items():
        if isinstance(value, Mapping) and value.get("name") in classes:
            entries = {key: _scalar(entry) for key, entry in value.items() if key != "name"}
            value = classes[str(value["name"])](**entries)
        restored[name] = list(value) if np.ndim(value) == 1 else _scalar(value)
    return restored


def _scalar(value: Any) -> Any:
    """Convert a NumPy number, as read from a file, to a Python number."""
    return value.item() if isinstance(value, np.generic) else value
