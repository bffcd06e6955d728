"""How far a query is from its reference, as far as their latents tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dice._labels.classify import fit_logistic
from dice._types import Floats

#: Cells of each side that the two are told apart by, and folds of the cross-fit.
SIDE_CELLS, FOLDS = 5000, 5
STRENGTH = 0.1
#: Density ratios are kept within this factor of 1.
LARGEST_RATIO = 50.0


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
    if min(len(reference), len(query)) < FOLDS:
        return DensityRatios(np.ones(len(reference)), np.ones(len(query)), 0.5)
    rng = np.random.default_rng(seed)
    folds = [rng.integers(FOLDS, size=len(cells)) for cells in (reference, query)]
    logits = [np.empty(len(cells)) for cells in (reference, query)]
    for fold in range(FOLDS):
        parts = [
            cells[_some(np.flatnonzero(f != fold), rng)] for cells, f in zip((reference, query), folds, strict=True)
        ]
        # Equal weight for both sides: the odds are then the ratio of their densities.
        size = max(map(len, parts))
        x = np.concatenate([part[np.arange(size) % len(part)] for part in parts])
        predict = fit_logistic(x, np.repeat([0, 1], size), 2, strength=STRENGTH)
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
    return positions if len(positions) <= SIDE_CELLS else rng.choice(positions, SIDE_CELLS, replace=False)
