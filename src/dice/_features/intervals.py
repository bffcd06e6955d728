"""Conformal prediction intervals with a learned spread.

The error of a prediction is divided by the expected error of the cell, its spread. The width of the intervals, in units
of the spread, is a quantile of these ratios in held-out cells. Coverage is exact for exchangeable cells and any spread.
A good spread makes intervals narrow where predictions are certain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dice._features.blend import best_weights
from dice._types import Floats

#: Smallest spread, as a share of the mean error. Neighbours may agree by chance.
SMALLEST_SPREAD = 0.2


@dataclass(frozen=True)
class Spread:
    """Expected absolute error: a constant plus a weighted sum of uncertainties, with weights (F, 1 + B)."""

    shares: Floats
    least: Floats

    @classmethod
    def fit(cls, errors: Floats, doubts: Floats) -> Spread:
        """Fit non-negative weights that predict the size of errors (n, F) from uncertainties (B, n, F)."""
        known = ~np.isnan(errors)
        inputs = np.stack([np.ones_like(errors), *doubts]) * known
        size = np.abs(np.nan_to_num(errors))
        n_cells = np.maximum(known.sum(0), 1)
        products = np.einsum("inf,jnf->fij", inputs, inputs) / n_cells[:, None, None]
        # Uncertainties may be constant over cells; the ridge keeps the problem solvable.
        products += 1e-6 * np.maximum(np.trace(products, axis1=1, axis2=2), 1e-12)[:, None, None] * np.eye(len(inputs))
        shares = best_weights(products, np.einsum("inf,nf->fi", inputs, size) / n_cells[:, None])
        return cls(shares, np.maximum(SMALLEST_SPREAD * size.sum(0) / n_cells, 1e-12))

    def __call__(self, doubts: Floats) -> Floats:
        """Return the spread (n, F) of other cells."""
        found = self.shares[:, 0] + np.einsum("fb,bnf->nf", self.shares[:, 1:], doubts)
        return np.maximum(found, self.least)


def conformal_quantile(scores: Floats, alpha: float) -> Floats:
    """Return the score (F,) that a new cell exceeds with probability at most alpha, from scores (m, F) of m cells.

    It is the ceil((m + 1)(1 - alpha))-th smallest score, or infinity if there are too few scores. NaN are ignored.
    """
    n = (~np.isnan(scores)).sum(0)
    rank = np.ceil((n + 1) * (1 - alpha) - 1e-9).astype(np.intp)
    ordered = np.concatenate([np.sort(scores, axis=0), np.full((1, scores.shape[1]), np.inf)])
    return ordered[np.where(rank > n, len(scores), rank - 1), np.arange(scores.shape[1])]


def correlations(found: Floats, truth: Floats) -> Floats:
    """Return Pearson's correlation (F,) of every feature over cells with a value; NaN for constant features."""
    known = ~np.isnan(truth)
    n = np.maximum(known.sum(0), 1)
    centred = [np.where(known, x - np.where(known, x, 0).sum(0) / n, 0) for x in (found, truth)]
    size = np.sqrt(np.square(centred[0]).sum(0) * np.square(centred[1]).sum(0))
    varies = size > 1e-9 * n
    return np.where(varies, (centred[0] * centred[1]).sum(0) / np.where(varies, size, 1), np.nan)
