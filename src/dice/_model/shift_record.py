"""The shift of a query as ``.uns`` keeps it, for any cells of the same query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dice._errors import InputError
from dice._model.offsets import Offsets
from dice._model.prior import LearnedPrior
from dice._types import Codes

STORED = ("none", "views", "offset", "clusters", "mean")


def check_record(record: Mapping[str, Any], names: list[str] | None) -> None:
    """Refuse what no call has stored, or was stored of a query with other batches than those with these `names`."""
    strategy, offsets = record.get("strategy"), np.asarray(record.get("offset", 0.0))
    known = strategy in STORED and (strategy == "none" or "offset" in record)
    if not known or offsets.dtype.kind not in "fiu":
        raise InputError(
            "shift is a table, but not one that an earlier call stored: pass query.uns['X_dice']['shift']."
        )
    if "offset" not in record:
        return
    stored = _batches(record)
    unknown = sorted(set(names or ()) - set(stored or ()))
    if (stored is None) != (names is None) or unknown:
        raise InputError(
            f"The stored shift has the batches {stored}, but the query has {names}: pass the batch_key of the call "
            "that stored it."
        )


def recall(prior: LearnedPrior, record: Mapping[str, Any], batches: Codes, names: list[str] | None) -> Offsets | None:
    """The offsets that an earlier call found, for cells in these `batches` (n,) with their `names`."""
    check_record(record, names)
    if "offset" not in record:
        return None
    offsets, stored = np.asarray(record["offset"], dtype=np.float32), _batches(record)
    n_clusters = 1 if prior.soft_clusters is None else len(prior.soft_clusters.means)
    fits = offsets.ndim == 3 and offsets.shape[1] in (1, n_clusters) and offsets.shape[2] == prior.n_latent
    if not fits or len(offsets) != len(stored or [0]) or not np.isfinite(offsets).all():
        raise InputError(
            f"The stored shift has offsets of shape {offsets.shape}, which do not fit the prior: call dice.tl.denoise "
            "with shift='auto'."
        )
    if stored is not None and names is not None:
        batches = np.array([stored.index(name) for name in names], dtype=np.intp)[batches]
    return Offsets(offsets, batches, prior.soft_clusters)


def _batches(record: Mapping[str, Any]) -> list[str] | None:
    return None if "batches" not in record else [str(name) for name in record["batches"]]
