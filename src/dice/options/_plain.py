"""Options as plain values: in ``.uns``, and on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from typing import Any

import numpy as np


def described(text: str, default: Any) -> Any:
    """A field whose help the command line shows."""
    return field(default=default, metadata={"help": text})


def as_plain(value: Any) -> Any:
    """Arguments in a form that .h5ad and .zarr can hold: objects by name and fields, functions by name, no None."""
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
    """Arguments of a stored call, as the verb takes them; `classes` are the settings objects that it may name."""
    restored: dict[str, Any] = {}
    for name, value in call.items():
        if isinstance(value, Mapping) and value.get("name") in classes:
            entries = {key: _scalar(entry) for key, entry in value.items() if key != "name"}
            value = classes[str(value["name"])](**entries)
        restored[name] = list(value) if np.ndim(value) == 1 else _scalar(value)
    return restored


def _scalar(value: Any) -> Any:
    """Files give numpy's numbers back."""
    return value.item() if isinstance(value, np.generic) else value
