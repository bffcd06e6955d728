"""Intervals that hold a share 1 - alpha of what is measured, by conformal prediction with a learned spread.

The error of a prediction is divided by the spread that is expected of the cell, and intervals are as many spreads wide
as the errors of held-out cells were. That is exact for exchangeable cells whatever the spread; a good one makes
intervals narrow where the prediction is sure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dice._features.blend import best_weights
from dice._types import Floats

#: A spread is at least this share of the mean error: a cell whose neighbours agree by chance is not known exactly.
SMALLEST_SPREAD = 0.2


@dataclass(frozen=True)
class Spread:
    """Expected size of an error: a constant and shares (F, 1 + B) of what makes candidates unsure."""

    shares: Floats
    least: Floats

    @classmethod
    def fit(cls, errors: Floats, doubts: Floats) -> Spread:
        """Learn how large errors (n, F) are for given doubts (B, n, F); no share is negative."""
        known = ~np.isnan(errors)
        inputs = np.stack([np.ones_like(errors), *doubts]) * known
        size = np.abs(np.nan_to_num(errors))
        n_cells = np.maximum(known.sum(0), 1)
        products = np.einsum("inf,jnf->fij", inputs, inputs) / n_cells[:, None, None]
        # Doubts may be the same for all cells: then the constant takes their place.
        products += 1e-6 * np.maximum(np.trace(products, axis1=1, axis2=2), 1e-12)[:, None, None] * np.eye(len(inputs))
        shares = best_weights(products, np.einsum("inf,nf->fi", inputs, size) / n_cells[:, None])
        return cls(shares, np.maximum(SMALLEST_SPREAD * size.sum(0) / n_cells, 1e-12))

    def __call__(self, doubts: Floats) -> Floats:
        """Spread (n, F) of other cells."""
        found = self.shares[:, 0] + np.einsum("fb,bnf->nf", self.shares[:, 1:], doubts)
        return np.maximum(found, self.least)


def conformal_quantile(scores: Floats, alpha: float) -> Floats:
    """The score (F,) that a new cell exceeds with probability alpha at most, by those of m cells (m, F).

    That is the ceil((m + 1)(1 - alpha))-th smallest one; infinite where there are too few. NaN are no scores.
    """
    n = (~np.isnan(scores)).sum(0)
    rank = np.ceil((n + 1) * (1 - alpha) - 1e-9).astype(np.intp)
    ordered = np.concatenate([np.sort(scores, axis=0), np.full((1, scores.shape[1]), np.inf)])
    return ordered[np.where(rank > n, len(scores), rank - 1), np.arange(scores.shape[1])]


def correlations(found: Floats, truth: Floats) -> Floats:
    """Pearson's correlation (F,) of every feature over the cells in which it is known; NaN where one does not vary."""
    known = ~np.isnan(truth)
    n = np.maximum(known.sum(0), 1)
    centred = [np.where(known, x - np.where(known, x, 0).sum(0) / n, 0) for x in (found, truth)]
    size = np.sqrt(np.square(centred[0]).sum(0) * np.square(centred[1]).sum(0))
    varies = size > 1e-9 * n
    return np.where(varies, (centred[0] * centred[1]).sum(0) / np.where(varies, size, 1), np.nan)
