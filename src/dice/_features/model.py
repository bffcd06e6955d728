"""The feature model: candidates, their weights, and conformal intervals.

The weights of candidates minimise the error of the weighted mean on held-out cells. They are shrunk to equal weights by
a pseudo-count, because few held-out cells cannot tell candidates apart.

The error of a prediction is divided by the expected error of the cell, its spread. The width of the intervals, in units
of the spread, is a quantile of these ratios in held-out cells. Coverage is exact for exchangeable cells and any spread.
A good spread makes intervals narrow where predictions are certain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from dice._features.regress import Candidates, Predictions, View
from dice._model.arrays import correlations
from dice._types import Codes, Floats, Mask

#: A feature is useless if its intervals are at least this share of those without a prediction, and if its correlation
#: is no better than normal errors with such intervals imply. Both are required: if few cells have a protein at all, the
#: interval without a prediction is narrow because it leaves these cells out. Probability that a useless feature has a
#: smaller correlation in the query than another one, on Liu, Liu 1 -> 3 and bmmc 1-3 -> 4 (one seed): .99, .95 and .92
#: with both conditions, .91, .90 and .69 with widths alone.
USELESS = 0.9
#: Number of cells predicted at once.
CHUNK = 4096
#: Pseudo-count of equal weights, in cells. Accuracy / macro-F1 over 14 pairs of technologies: .803 / .742 without it,
#: .822 / .755 with 100 cells, .820 / .750 with equal weights; over four random splits .867 / .802, .873 / .802 and
#: .871 / .798 (one seed).
BLEND_CELLS = 100.0
#: Smallest spread, as a share of the mean error. Neighbours may agree by chance.
SMALLEST_SPREAD = 0.2


def blend_values(residuals: Floats, *, pseudo: float = BLEND_CELLS) -> Floats:
    """Return weights (F, J) of J candidates for every feature that minimise the squared error of the weighted mean.

    Weights are not negative and sum to 1, so the error of the weighted mean is the weighted mean of the errors.

    Parameters
    ----------
    residuals
        Errors (J, n, F) on held-out cells; NaN where a feature was not measured.
    pseudo
        Weight of equal weights, in cells.
    """
    n_candidates = len(residuals)
    known = np.nan_to_num(np.asarray(residuals, dtype=np.float64))
    products = np.einsum("inf,jnf->fij", known, known)
    n_cells = np.maximum((~np.isnan(residuals[0])).sum(0), 1)
    size = np.trace(products, axis1=1, axis2=2)
    # If all candidates predict a feature exactly, a pull of any size gives equal weights.
    pull = np.where(size > 0, pseudo * size / n_candidates / n_cells, 1.0)
    a = products + pull[:, None, None] * np.eye(n_candidates)
    # Scaled to the sum 1, the weights that minimise w'aw - 2 (1'w) minimise w'aw among all weights with this sum.
    weights = best_weights(a, np.ones(a.shape[:2]))
    return weights / weights.sum(1, keepdims=True)


def best_weights(a: Floats, b: Floats) -> Floats:
    """Return non-negative weights (F, J) that minimise w'aw - 2 b'w for positive definite a (F, J, J) and b (F, J)."""
    roots = np.linalg.cholesky(a)
    targets = np.linalg.solve(roots, b[..., None])[..., 0]
    return np.stack([nnls(root.T, target)[0] for root, target in zip(roots, targets, strict=True)])


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


@dataclass(frozen=True)
class Judged:
    """Quality of the predictions of features (F,) in held-out cells."""

    #: NaN for features that do not vary.
    correlation: Floats
    #: Mean width of the intervals, and the width for a constant prediction.
    width: Floats
    marginal_width: Floats
    #: Number of held-out cells with a value.
    n_cells: Codes

    @property
    def useless(self) -> Mask:
        """Mask (F,) of features that cannot be predicted and must not be used."""
        alike = ~(self.width < USELESS * self.marginal_width)
        unknown = np.isnan(self.correlation) | np.isinf(self.width)
        return unknown | (alike & ~(self.correlation > np.sqrt(1 - USELESS**2)))


@dataclass(frozen=True)
class FeatureModel:
    """Predicts F features of cells, with intervals."""

    candidates: Candidates
    #: Weights (F, J) of the candidates.
    weights: Floats
    spread: Spread
    #: Half widths (F,) of the intervals in units of the spread.
    factor: Floats
    #: Centre and scale (F,) of the features. All other fields are in these units.
    centre: Floats
    scale: Floats
    judged: Judged

    @classmethod
    def learn(
        cls,
        cells: View,
        values: Floats,
        fit: Codes,
        calibration: Codes,
        folds: Iterable[tuple[Codes, Codes]],
        alpha: float,
    ) -> FeatureModel:
        """Learn features (n, F) of reference cells.

        Parameters
        ----------
        cells, values
            All cells, and their features; NaN if a feature was not measured.
        fit, calibration
            Cells to learn from, and cells used only to calibrate intervals.
        folds
            Pairs of training and test cells within `fit`. Errors on test cells determine the weights of candidates and
            the spread. They also calibrate intervals, because few calibration cells give an imprecise coverage.
        alpha
            Share of cells whose interval may miss the true value.
        """
        centre, scale = np.nanmean(values[fit], axis=0), np.nanstd(values[fit], axis=0)
        # Features that vary less than the precision of float32 are treated as constant.
        varies = scale > 1e-6 * np.abs(centre)
        scale = np.where(varies, scale, 1.0)
        values = (values - centre) / scale * varies
        parts, held_out = [], []
        for train, test in folds:
            parts.append(Candidates.fit(cells[train], values[train])(cells[test]))
            held_out.append(test)
        predicted, truth = Predictions.joined(parts), values[np.concatenate(held_out)]
        weights = blend_values(predicted.values - truth)
        spread = Spread.fit(truth - predicted.mixed(weights), predicted.doubts)
        candidates = Candidates.fit(cells[fit], values[fit])
        if len(calibration):
            predicted = Predictions.joined([predicted, candidates(cells[calibration])])
            truth = np.concatenate([truth, values[calibration]])
        found, size = predicted.mixed(weights), spread(predicted.doubts)
        factor = conformal_quantile(np.abs(truth - found) / size, alpha)
        judged = Judged(
            correlations(found, truth),
            2 * factor * size.mean(0) * scale,
            2 * conformal_quantile(np.abs(truth), alpha) * scale,
            (~np.isnan(truth)).sum(0),
        )
        return cls(candidates, weights, spread, factor, centre, scale, judged)

    def __call__(self, cells: View) -> tuple[Floats, Floats]:
        """Return predictions (n, F) and half widths of their intervals (n, F)."""
        empty = np.empty((0, len(self.scale)), np.float32)
        means, halves = [empty], [empty]
        for start in range(0, len(cells), CHUNK):
            predicted = self.candidates(cells[slice(start, start + CHUNK)])
            means.append((self.centre + self.scale * predicted.mixed(self.weights)).astype(np.float32))
            halves.append((self.scale * self.factor * self.spread(predicted.doubts)).astype(np.float32))
        return np.concatenate(means), np.concatenate(halves)
