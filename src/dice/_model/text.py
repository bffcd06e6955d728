"""Text of a stored prior, which may come from anybody's file."""

from __future__ import annotations

from typing import Any


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
