"""What separates a query from its reference: offsets to remove, and how well a classifier separates the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dice import _log
from dice._errors import InputError
from dice._model.arrays import fit_logistic
from dice._model.offsets import Offsets, find_offsets, recall
from dice._types import Codes, Floats
from dice.options import FOR_LABELS, Shift

if TYPE_CHECKING:
    from dice._query.query import Query

#: Maximum number of cells of each side for the regression that separates them, and folds of the cross-fit.
CELLS_PER_SIDE, SHIFT_FOLDS = 5000, 5
DOMAIN_PENALTY = 0.1
#: AUC above which the query differs from the reference (docs/labels.md).
DOUBTFUL = 0.65


def find_shift(query: Query, wanted: Shift | Mapping[str, Any]) -> tuple[Offsets | None, dict[str, Any]]:
    """Return the offsets of a query's cells and their record for ``.uns``; `wanted` may be an earlier record."""
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
    some = ~latents.empty[query.sampled]
    cells = query.sampled[some]
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


def measure_shift(query: Query, y: Floats, calibration_y: Floats, seed: int) -> float:
    """Return the AUC that separates scaled latents y (n, k) of the query from those of calibration cells (m, k)."""
    return separation(calibration_y, y[query_order(query)], seed)


def query_order(query: Query) -> Codes:
    """Return the positions of the cells with expression, in the order of their seeds, which belong to the cells."""
    order = np.argsort(query.seeds, kind="stable")
    return np.asarray(order[~query.latents.empty[order]])


def separation(reference: Floats, query: Floats, seed: int) -> float:
    """Return how well a logistic regression separates query cells (n, p) from reference cells (m, p), as an AUC.

    The AUC is the probability that a random query cell looks more like a query than a random reference cell does: 0.5
    for cells of one distribution, 1 for cells that do not overlap. The regression overfits its own cells, so the cells
    of each fold are judged by a regression on the other four.
    """
    sides = reference, query
    if min(map(len, sides)) < SHIFT_FOLDS:
        return 0.5
    rng = np.random.default_rng(seed)
    folds = [rng.integers(SHIFT_FOLDS, size=len(cells)) for cells in sides]
    logits = [np.empty(len(cells)) for cells in sides]
    for fold in range(SHIFT_FOLDS):
        parts = [cells[_some(np.flatnonzero(f != fold), rng)] for cells, f in zip(sides, folds, strict=True)]
        # Both sides have equal weight.
        size = max(map(len, parts))
        x = np.concatenate([part[np.arange(size) % len(part)] for part in parts])
        predict = fit_logistic(x, np.repeat([0, 1], size), 2, strength=DOMAIN_PENALTY)
        for cells, f, out in zip(sides, folds, logits, strict=True):
            if (f == fold).any():
                p = np.clip(predict(cells[f == fold]).astype(np.float64), 1e-9, 1)
                out[f == fold] = np.log(p[:, 1]) - np.log(p[:, 0])
    return auc(*logits)


def auc(low: Floats, high: Floats) -> float:
    """Return the probability that a value of `high` exceeds one of `low`; ties count half."""
    ordered = np.sort(low)
    below = (np.searchsorted(ordered, high, "left") + np.searchsorted(ordered, high, "right")) / 2
    return float(below.mean() / max(len(low), 1)) if len(high) else 0.5


def _some(positions: Codes, rng: np.random.Generator) -> Codes:
    return positions if len(positions) <= CELLS_PER_SIDE else rng.choice(positions, CELLS_PER_SIDE, replace=False)
