"""Differences between a query and its reference: offsets to remove, and how well a classifier separates the two."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dice import _log
from dice._errors import InputError
from dice._model.arrays import separation
from dice._model.offsets import SAMPLED_CELLS, Offsets, find_offsets, recall
from dice._types import Codes, Floats
from dice.options import FOR_LABELS, Shift

if TYPE_CHECKING:
    from dice._query.query import Query

#: AUC above which a query counts as different from the reference (docs/labels.md).
DOUBTFUL = 0.65


def find_shift(query: "Query", wanted: Shift | Mapping[str, Any]) -> tuple[Offsets | None, dict[str, Any]]:
    """Return the offsets of a query's cells and their record for ``.uns``.

    `wanted` is a strategy, or the record of an earlier call, whose offsets are used again.
    """
    batches, latents = query.batches, query.latents
    codes = np.zeros(query.matrix.n_cells, np.intp) if batches is None else np.asarray(batches.codes, np.intp)
    names = None if batches is None else [str(name) for name in batches.categories]
    if not isinstance(wanted, Shift):
        return recall(query.prior, wanted, codes, names), dict(wanted)
    if wanted.strategy in FOR_LABELS:
        raise InputError(
            f"shift={wanted.strategy!r} serves for labels only and cannot change an embedding: pass it to "
            "dice.tl.transfer_labels, or pass 'offset', 'clusters', 'mean' or False."
        )
    cells = query.order[:SAMPLED_CELLS]
    cells = cells[~latents.empty[cells]]
    if not len(cells):
        return None, {"strategy": "none"}
    y = latents.y[cells]
    if query.measured:
        y = query.prior.mean(y, latents.log_depth[cells])
    n_batches = 1 if names is None else len(names)
    offsets = find_offsets(query.prior, y, codes[cells], wanted.strategy, n_batches)  # type: ignore[arg-type]
    _log.info(f"Shift: {wanted.strategy}.")
    record: dict[str, Any] = {"strategy": wanted.strategy, "offset": offsets.offsets}
    if names is not None:
        record |= {"batches": np.array(names, dtype=str), "batch_key": wanted.batch_key}
    return replace(offsets, batches=codes), record


def measure_shift(query: "Query", y: Floats, calibration_y: Floats, seed: int) -> float:
    """Return the AUC that separates scaled latents y (n, k) of the query from those of calibration cells (m, k)."""
    return separation(calibration_y, y[query_order(query)], seed)


def query_order(query: "Query") -> Codes:
    """Return the positions of the cells with expression, in the order of their seeds."""
    return query.order[~query.latents.empty[query.order]]
