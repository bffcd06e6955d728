"""The card of a prior: a description of its reference for readers of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

#: Packages whose versions are recorded.
PACKAGES = ("scdice", "torch", "numpy", "anndata")
#: Maximum number of labels listed in the text.
LISTED = 100


def make_card(
    labels_key: str, names: list[str], counts: Sequence[int], *, n_cells: int, n_genes: int, **others: Any
) -> dict[str, Any]:
    """Return the card of a reference. Entries of `others` that are not None are added unchanged."""
    card = {
        "labels_key": labels_key,
        "labels": names,
        "label_cells": [int(n) for n in counts],
        "cells": n_cells,
        "genes": n_genes,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }
    return card | {name: value for name, value in others.items() if value is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def describe(card: Mapping[str, Any]) -> str:
    """Return a card as text. The card may come from an untrusted file."""
    versions = card.get("versions")
    packages = ", ".join(f"{name} {number}" for name, number in versions.items()) if isinstance(versions, dict) else ""
    lines = [
        f"learned from {_printable(card.get('cells'))} cells and {_printable(card.get('genes'))} genes"
        + "".join(f", {_printable(card[name])}" for name in ("source", "date") if card.get(name)),
        f"labels {_printable(card.get('labels_key'))!r}: accuracy {_printable(card.get('accuracy', 'unknown'))} on "
        f"{_printable(card.get('held_out'))} held-out cells",
        f"  {'cells':>7}  {'F1':>6}  label",
    ]
    names, counts, scores = (_listed(card, name) for name in ("labels", "label_cells", "f1"))
    for i, name in enumerate(names[:LISTED]):
        n, f1 = (values[i] if i < len(values) else None for values in (counts, scores))
        lines.append(f"  {_printable(n):>7}  {'-' if f1 is None else _printable(f1):>6}  {_printable(name)}")
    if len(names) > LISTED:
        lines.append(f"  and {len(names) - LISTED} more")
    return "\n".join([*lines, _printable(packages)])


def _listed(card: Mapping[str, Any], name: str) -> list[Any]:
    found = card.get(name)
    return found if isinstance(found, list) else []


def _printable(value: Any) -> str:
    """Return a value as one line of at most 200 printable characters."""
    return "".join(filter(str.isprintable, " ".join(str(value).split())))[:200]
