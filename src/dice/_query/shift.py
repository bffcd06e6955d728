"""What separates a query from its reference: offsets to remove, and how well the two can be told apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dice import _log
from dice._errors import InputError
from dice._model.logistic import fit_logistic
from dice._model.offsets import Offsets, find_offsets, recall
from dice._types import Codes, Floats
from dice.options import FOR_LABELS, Shift, torch_device

if TYPE_CHECKING:
    from dice._query.query import Query

#: Maximum number of cells of each side for the regression that tells them apart, and folds of the cross-fit.
CELLS_PER_SIDE, SHIFT_FOLDS = 5000, 5
DOMAIN_PENALTY = 0.1
#: Density ratios are kept within this factor of 1.
LARGEST_RATIO = 50.0
#: AUC above which the query differs from the reference (docs/labels.md).
DOUBTFUL = 0.65


def find_shift(query: Query, wanted: Shift | Mapping[str, Any]) -> tuple[Offsets | None, dict[str, Any]]:
    """Return the offsets of a query's cells and their record for ``.uns``; `wanted` may be an earlier record."""
    batches, latents, device = query.batches, query.latents, torch_device(query.options.device)
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
    cells = query.sampled[some]
    y = latents.y[cells]
    if query.measured:
        y = query.prior.mean(y, latents.log_depth[cells])
    n_batches = 1 if names is None else len(names)
    offsets = find_offsets(query.prior, y, codes[cells], wanted.strategy, device, n_batches)  # type: ignore[arg-type]
    if offsets is None:
        return None, {"strategy": "none"}
    _log.info(f"Shift: {wanted.strategy}.")
    record: dict[str, Any] = {"strategy": wanted.strategy, "offset": offsets.offsets}
    if names is not None:
        record |= {"batches": np.array(names, dtype=str), "batch_key": wanted.batch_key}
    return replace(offsets, batches=codes), record


@dataclass(frozen=True)
class DomainShift:
    """Density ratios query / reference of reference cells (m,) and query cells (n,), and the AUC of telling them apart.

    The AUC is the probability that a random query cell looks more like a query than a random reference cell does: 0.5
    for cells of one distribution, 1 for cells that do not overlap.
    """

    reference: Floats
    query: Floats
    auc: float

    @property
    def effective(self) -> float:
        """Effective number of reference cells under the density ratios."""
        return effective_size(self.reference)

    @property
    def doubtful(self) -> bool:
        """Whether the query differs from the reference."""
        return self.auc > DOUBTFUL

    @property
    def params(self) -> dict[str, Any]:
        return {"effective_calibration": self.effective, "shift_auc": self.auc}


def measure_shift(query: Query, y: Floats, calibration_y: Floats, seed: int) -> DomainShift:
    """Compare scaled latents y (n, k) of the query with those of calibration cells (m, k)."""
    order = query_order(query)
    found = measure_domain_shift(calibration_y, y[order], seed)
    ratios = np.ones(len(y))
    ratios[order] = found.query
    return replace(found, query=ratios)


def query_order(query: Query) -> Codes:
    """Return the positions of the cells with expression, in the order of their seeds, which belong to the cells."""
    order = np.argsort(query.seeds, kind="stable")
    return np.asarray(order[~query.latents.empty[order]])


def measure_domain_shift(reference: Floats, query: Floats, seed: int) -> DomainShift:
    """Tell query cells (n, p) from reference cells (m, p) by logistic regression; the odds are the density ratio.

    The regression overfits its own cells, so the ratios of each fold come from the other four.
    """
    sides = reference, query
    if min(map(len, sides)) < SHIFT_FOLDS:
        return DomainShift(np.ones(len(reference)), np.ones(len(query)), 0.5)
    rng = np.random.default_rng(seed)
    folds = [rng.integers(SHIFT_FOLDS, size=len(cells)) for cells in sides]
    logits = [np.empty(len(cells)) for cells in sides]
    for fold in range(SHIFT_FOLDS):
        parts = [cells[_some(np.flatnonzero(f != fold), rng)] for cells, f in zip(sides, folds, strict=True)]
        # Equal weight for both sides: the odds are then the ratio of their densities.
        size = max(map(len, parts))
        x = np.concatenate([part[np.arange(size) % len(part)] for part in parts])
        predict = fit_logistic(x, np.repeat([0, 1], size), 2, strength=DOMAIN_PENALTY)
        for cells, f, out in zip(sides, folds, logits, strict=True):
            if (f == fold).any():
                p = np.clip(predict(cells[f == fold]).astype(np.float64), 1e-9, 1)
                out[f == fold] = np.log(p[:, 1]) - np.log(p[:, 0])
    bound = np.log(LARGEST_RATIO)
    ratios = [np.exp(np.clip(x, -bound, bound)) for x in logits]
    return DomainShift(ratios[0], ratios[1], auc(*logits))


def effective_size(weights: Floats) -> float:
    """Return the effective sample size of the weights, (sum w)^2 / sum w^2."""
    total = float(np.sum(weights))
    return total**2 / float(np.sum(np.square(weights))) if total > 0 else 0.0


def auc(low: Floats, high: Floats) -> float:
    """Return the probability that a value of `high` exceeds one of `low`; ties count half."""
    ordered = np.sort(low)
    below = (np.searchsorted(ordered, high, "left") + np.searchsorted(ordered, high, "right")) / 2
    return float(below.mean() / max(len(low), 1)) if len(high) else 0.5


def _some(positions: Codes, rng: np.random.Generator) -> Codes:
    return positions if len(positions) <= CELLS_PER_SIDE else rng.choice(positions, CELLS_PER_SIDE, replace=False)
