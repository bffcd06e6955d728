"""What separates a query from the reference as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dice import _log
from dice._errors import InputError
from dice._model.offsets import Offsets, find_offsets, recall
from dice.options import FOR_LABELS, Shift, torch_device

if TYPE_CHECKING:
    from dice._query.query import Query


def find_shift(query: Query, wanted: Shift | Mapping[str, Any]) -> tuple[Offsets | None, dict[str, Any]]:
    """The offsets of a query's cells, and what ``.uns`` keeps of them; an earlier call may have found them."""
    batches, latents = query.batches, query.latents
    codes = np.zeros(query.matrix.n_cells, np.intp) if batches is None else np.asarray(batches.codes, np.intp)
    names = None if batches is None else [str(name) for name in batches.categories]
    if not isinstance(wanted, Shift):
        return recall(query.prior, wanted, codes, names), dict(wanted)
    if wanted.strategy in FOR_LABELS:
        raise InputError(
            f"shift={wanted.strategy!r} compares cells for labels and moves no embedding: pass it to "
            "dice.tl.transfer_labels, or pass 'offset', 'clusters', 'mean' or False."
        )
    some = ~latents.empty[query.sampled]
    cells, y = query.sampled[some], latents.sample[some]
    if query.measured:
        y = query.prior.mean(y, latents.log_depth[cells])
    device, n_batches = torch_device(query.device), 1 if names is None else len(names)
    offsets = find_offsets(query.prior, y, codes[cells], wanted.strategy, device, n_batches)  # type: ignore[arg-type]
    if offsets is None:
        return None, {"strategy": "none"}
    _log.info(f"Shift: {wanted.strategy}.")
    record: dict[str, Any] = {"strategy": wanted.strategy, "offset": offsets.offsets}
    if names is not None:
        record |= {"batches": np.array(names, dtype=str), "batch_key": wanted.batch_key}
    return replace(offsets, batches=codes), record
