"""Plain values of a stored prior: text that files can hold, and a checksum over values.

The checksum does not read the bytes of a file, so that it is the same in every file format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def checksum(raw: Mapping[str, Any]) -> str:
    """SHA-256 over every field but the checksum itself, in an order and form that files preserve."""
    digest = hashlib.sha256()
    for name, value in _flatten(raw):
        if name != "sha256":
            digest.update(f"{name}\0".encode())
            digest.update(_canonical(value))
    return digest.hexdigest()


def _flatten(raw: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    for name in sorted(raw):
        value = raw[name]
        if isinstance(value, Mapping):
            items += _flatten(value, f"{prefix}{name}/")
        else:
            items.append((f"{prefix}{name}", value))
    return items


def _canonical(value: Any) -> bytes:
    """Bytes of a value that do not depend on how a file format stored it."""
    if isinstance(value, str):
        return b"text" + value.encode()
    array = np.asarray(value)
    if array.dtype.kind in "OUT":
        return b"names" + "\0".join(map(str, array)).encode()
    if array.dtype.kind in "iu":
        return b"int" + np.ascontiguousarray(array, dtype="<i8").tobytes()
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return f"{little.dtype.str}{array.shape}".encode() + little.tobytes()


def is_text(value: Any, longest: int) -> bool:
    """Whether this is text that files can hold: no half characters, which have no bytes, and no end marks."""
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def has_plain_text(value: Any, longest: int) -> bool:
    """Whether all text is such that files can hold it: JSON spells characters that would not pass as they are."""
    if isinstance(value, dict):
        return all(has_plain_text(part, longest) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return all(has_plain_text(part, longest) for part in value)
    return not isinstance(value, str) or is_text(value, longest)
