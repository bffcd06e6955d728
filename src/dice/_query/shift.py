"""What separates a query from the reference as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dice import _log
from dice._core.shift.choice import find_offsets
from dice._core.shift.offsets import Offsets
from dice._core.shift.record import recall
from dice.options import Shift, torch_device

if TYPE_CHECKING:
    from dice._query.query import Query


def find_shift(query: Query) -> tuple[Offsets | None, dict[str, Any]]:
    """The offsets of a query's cells, and what ``.uns`` keeps of them; an earlier call may have found them."""
    wanted, batches, latents = query.options.shift, query.batches, query.latents
    codes = np.zeros(query.matrix.n_cells, np.intp) if batches is None else np.asarray(batches.codes, np.intp)
    names = None if batches is None else [str(name) for name in batches.categories]
    if not isinstance(wanted, Shift):
        return recall(query.prior, wanted, codes, names), dict(wanted)
    some = ~latents.empty[query.sampled]
    cells, y = query.sampled[some], latents.sample[some]
    if query.measured:
        y = query.prior.mean(y, latents.log_depth[cells])
    n_batches = 1 if names is None else len(names)
    offsets, record = find_offsets(query.prior, y, codes[cells], wanted.strategy, torch_device(query.device), n_batches)
    _log.info(f"Shift: {record['strategy']}.")
    if names is not None:
        record |= {"batches": np.array(names, dtype=str), "batch_key": wanted.batch_key}
    return None if offsets is None else replace(offsets, batches=codes), record
