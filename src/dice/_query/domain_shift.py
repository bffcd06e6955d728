"""How far a query is from its reference, as far as their latents tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice._labels.conformal import effective_size
from dice._model.logistic import fit_logistic
from dice._query.query import Query
from dice._types import Codes, Floats

#: Cells of each side that the two are told apart by, and folds of the cross-fit.
CELLS_PER_SIDE, SHIFT_FOLDS = 5000, 5
DOMAIN_PENALTY = 0.1
#: Density ratios are kept within this factor of 1.
LARGEST_RATIO = 50.0
#: How well query and reference may be told apart (AUC) before it is said that they differ (docs/labels.md).
DOUBTFUL = 0.65


@dataclass(frozen=True)
class DensityRatios:
    """Density ratios query / reference of reference cells (m,) and query cells (n,), and how well both are told apart.

    ``auc`` is the probability that a random query cell looks more like a query than a random reference cell does: 0.5
    for cells of the same distribution, 1 for cells that share no ground.
    """

    reference: Floats
    query: Floats
    auc: float


def measure_domain_shift(reference: Floats, query: Floats, seed: int) -> DensityRatios:
    """Tell query (n, p) from reference cells (m, p) by logistic regression; the odds are the density ratio.

    Ratios of cells that the regression was fitted to would be flattered, so every fifth is judged by the other four.
    """
    if min(len(reference), len(query)) < SHIFT_FOLDS:
        return DensityRatios(np.ones(len(reference)), np.ones(len(query)), 0.5)
    rng = np.random.default_rng(seed)
    folds = [rng.integers(SHIFT_FOLDS, size=len(cells)) for cells in (reference, query)]
    logits = [np.empty(len(cells)) for cells in (reference, query)]
    for fold in range(SHIFT_FOLDS):
        parts = [
            cells[_some(np.flatnonzero(f != fold), rng)] for cells, f in zip((reference, query), folds, strict=True)
        ]
        # Equal weight for both sides: the odds are then the ratio of their densities.
        size = max(map(len, parts))
        x = np.concatenate([part[np.arange(size) % len(part)] for part in parts])
        predict = fit_logistic(x, np.repeat([0, 1], size), 2, strength=DOMAIN_PENALTY)
        for cells, f, out in zip((reference, query), folds, logits, strict=True):
            if (f == fold).any():
                p = np.clip(predict(cells[f == fold]).astype(np.float64), 1e-9, 1)
                out[f == fold] = np.log(p[:, 1]) - np.log(p[:, 0])
    bound = np.log(LARGEST_RATIO)
    ratios = [np.exp(np.clip(x, -bound, bound)) for x in logits]
    return DensityRatios(ratios[0], ratios[1], auc(logits[0], logits[1]))


def auc(low: Floats, high: Floats) -> float:
    """Probability that a value of `high` exceeds one of `low`; ties count half."""
    ordered = np.sort(low)
    below = (np.searchsorted(ordered, high, "left") + np.searchsorted(ordered, high, "right")) / 2
    return float(below.mean() / max(len(low), 1)) if len(high) else 0.5


def _some(positions: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    return positions if len(positions) <= CELLS_PER_SIDE else rng.choice(positions, CELLS_PER_SIDE, replace=False)


def query_order(query: Query) -> Codes:
    """Positions of the cells with expression in the order of their seeds, which belong to the cells."""
    order = np.argsort(query.seeds, kind="stable")
    return np.asarray(order[~query.latents.empty[order]])


@dataclass(frozen=True)
class DomainShift:
    """Density ratios of calibration (m,) and query cells (n,), and how well the two are told apart."""

    calibration: Floats
    query: Floats
    auc: float

    @property
    def effective(self) -> float:
        """Number of calibration cells that count."""
        return effective_size(self.calibration)

    @property
    def doubtful(self) -> bool:
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
    return DomainShift(found.reference, ratios, found.auc)
