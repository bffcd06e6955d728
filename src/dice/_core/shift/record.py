"""What separates a query from its reference, as it was found and as ``.uns`` keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice._core.prior.prior import Prior
from dice._core.shift.offsets import SHALLOWEST, Depth, Shift
from dice._errors import InputError

STRATEGIES = ("offset", "kinds", "mean")


@dataclass(frozen=True)
class Calibration:
    """The shift of a query, None where it is left alone, and what ``.uns`` keeps of it."""

    shift: Shift | None
    record: dict[str, Any]

    def explained(self, cells: NDArray[np.intp]) -> NDArray[np.float32] | float:
        """The one offset (m, k) that explains why these cells of the query stood apart; 0 where none does."""
        shift = self.shift
        one = shift is not None and shift.depth is None and shift.offsets.shape[1] == 1
        return shift.offsets[shift.batches[cells], 0] if shift is not None and one else 0.0


def recall(prior: Prior, record: Mapping[str, Any], codes: NDArray[np.intp], names: list[str] | None) -> Calibration:
    """The shift that an earlier call found, for any cells of the same query."""
    strategy, offsets = record.get("strategy"), np.asarray(record.get("offset", 0.0))
    known = strategy in ("none", "mixed", *STRATEGIES) and (strategy == "none" or "offset" in record)
    if not known or offsets.dtype.kind not in "fiu":
        raise InputError(
            "calibrate is a table, but not one that an earlier call stored: pass query.uns['X_dice']['calibration']."
        )
    if "offset" not in record:
        return Calibration(None, dict(record))
    offsets = offsets.astype(np.float32)
    stored = None if "batches" not in record else [str(name) for name in record["batches"]]
    unknown = sorted(set(names or ()) - set(stored or ()))
    if (stored is None) != (names is None) or unknown:
        raise InputError(
            f"The stored calibration has the batches {stored}, but the query has {names}: pass the batch_key of the "
            "call that stored it."
        )
    n_kinds = 1 if prior.kinds is None else len(prior.kinds.means)
    fits = offsets.ndim == 3 and offsets.shape[1] in (1, n_kinds) and offsets.shape[2] == prior.n_latent
    if not fits or len(offsets) != len(stored or [0]) or not np.isfinite(offsets).all():
        raise InputError(
            f"The stored calibration has offsets of shape {offsets.shape}, which do not fit the prior: call "
            "dice.tl.denoise with calibrate='auto'."
        )
    if stored is not None and names is not None:
        codes = np.array([stored.index(name) for name in names], dtype=np.intp)[codes]
    return Calibration(Shift(offsets, codes, prior.kinds, _recall_depth(prior, record, len(offsets))), dict(record))


def _recall_depth(prior: Prior, record: Mapping[str, Any], n_batches: int) -> Depth | None:
    if "depth" not in record:
        return None
    shares, empty = (np.asarray(record.get(name, ())) for name in ("depth", "empty"))
    fits = shares.shape == (n_batches,) and empty.shape == (prior.n_latent,)
    plain = all(x.dtype.kind in "fiu" and np.isfinite(x).all() for x in (shares, empty))
    if not (fits and plain and (shares >= SHALLOWEST).all() and (shares <= 1).all()):
        raise InputError(
            "The stored calibration has a depth that does not fit the prior: call dice.tl.denoise with "
            "calibrate='auto'."
        )
    return Depth(empty.astype(np.float32), shares.astype(np.float32))
