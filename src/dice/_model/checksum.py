"""The checksum of a stored prior: over values, not over the bytes of a file, so that it outlives file formats."""

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
