"""The feature model: candidates, their weights, and intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dice._features.blend import blend_values
from dice._features.candidates import Candidates, Predictions, View
from dice._features.intervals import Spread, conformal_quantile, correlations
from dice._types import Codes, Floats, Mask

#: A feature is useless if its intervals are at least this share of those without a prediction, and if its correlation
#: is no better than normal errors with such intervals imply. Both are required: if few cells have a protein at all, the
#: interval without a prediction is narrow because it leaves these cells out. Probability that a useless feature has a
#: smaller correlation in the query than another one, on Liu, Liu 1 -> 3 and bmmc 1-3 -> 4 (one seed): .99, .95 and .92
#: with both conditions, .91, .90 and .69 with widths alone.
USELESS = 0.9
#: Number of cells predicted at once.
CHUNK = 4096


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

    def widened(self, by: float) -> FeatureModel:
        """Return the model with intervals wider by this factor."""
        return replace(self, factor=self.factor * by)

    def __call__(self, cells: View) -> tuple[Floats, Floats]:
        """Return predictions (n, F) and half widths of their intervals (n, F)."""
        empty = np.empty((0, len(self.scale)), np.float32)
        means, halves = [empty], [empty]
        for start in range(0, len(cells), CHUNK):
            predicted = self.candidates(cells[slice(start, start + CHUNK)])
            means.append((self.centre + self.scale * predicted.mixed(self.weights)).astype(np.float32))
            halves.append((self.scale * self.factor * self.spread(predicted.doubts)).astype(np.float32))
        return np.concatenate(means), np.concatenate(halves)
