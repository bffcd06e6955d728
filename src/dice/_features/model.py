"""What a reference teaches about features: candidates, their mixture, and intervals, in units of each feature."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dice._features.blend import blend_values
from dice._features.candidates import Candidates, Said, View
from dice._features.intervals import Spread, conformal_quantile, correlations
from dice._types import Codes, Floats, Mask

#: Features cannot be predicted if intervals are at least this share of those without any prediction, and correlations
#: are no better than that of such intervals for normal errors. Both must agree: where few cells have a protein at all,
#: the interval without a prediction is narrow because it leaves these out. How often a feature that is called useless
#: has a smaller correlation in the query than one that is not, on Liu, Liu 1 -> 3 and bmmc 1-3 -> 4 (one seed): .99,
#: .95 and .92 by both, .91, .90 and .69 by widths alone.
USELESS = 0.9
#: Cells that are predicted at once.
CHUNK = 4096


@dataclass(frozen=True)
class Judged:
    """How well features (F,) were predicted of held-out cells."""

    #: NaN for features that do not vary.
    correlation: Floats
    #: Mean width of the intervals, and that of the intervals of a prediction that is the same for all cells.
    width: Floats
    marginal_width: Floats
    #: Held-out cells in which it was measured.
    n_cells: Codes

    @property
    def useless(self) -> Mask:
        """Features that must not be read: to know the cell says nothing about them."""
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
    #: Centre and scale (F,) of the features: all else is in these units.
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
        """Learn features (n, F) of a reference's cells.

        Parameters
        ----------
        cells, values
            All cells, and their features; NaN where one was not measured.
        fit, calibration
            Cells to learn from, and cells that only calibrate intervals.
        folds
            Parts of `fit` to learn from, and those to judge by: their errors weigh the candidates, teach the spread
            and calibrate too, because the few calibration cells alone leave the coverage of single features to chance.
        alpha
            Share of cells whose interval may miss the feature.
        """
        centre, scale = np.nanmean(values[fit], axis=0), np.nanstd(values[fit], axis=0)
        # A constant is not always exact, and float32 ends at the seventh digit: what varies less cannot be written.
        varies = scale > 1e-6 * np.abs(centre)
        scale = np.where(varies, scale, 1.0)
        values = (values - centre) / scale * varies
        parts, held_out = [], []
        for train, test in folds:
            parts.append(Candidates.fit(cells[train], values[train])(cells[test]))
            held_out.append(test)
        said, truth = Said.joined(parts), values[np.concatenate(held_out)]
        weights = blend_values(said.values - truth)
        spread = Spread.fit(truth - said.mixed(weights), said.doubts)
        candidates = Candidates.fit(cells[fit], values[fit])
        if len(calibration):
            said = Said.joined([said, candidates(cells[calibration])])
            truth = np.concatenate([truth, values[calibration]])
        found, size = said.mixed(weights), spread(said.doubts)
        factor = conformal_quantile(np.abs(truth - found) / size, alpha)
        judged = Judged(
            correlations(found, truth),
            2 * factor * size.mean(0) * scale,
            2 * conformal_quantile(np.abs(truth), alpha) * scale,
            (~np.isnan(truth)).sum(0),
        )
        return cls(candidates, weights, spread, factor, centre, scale, judged)

    def widened(self, by: float) -> FeatureModel:
        """The same with wider intervals."""
        return replace(self, factor=self.factor * by)

    def __call__(self, cells: View) -> tuple[Floats, Floats]:
        """Predictions (n, F) and half widths of their intervals (n, F)."""
        empty = np.empty((0, len(self.scale)), np.float32)
        means, halves = [empty], [empty]
        for start in range(0, len(cells), CHUNK):
            said = self.candidates(cells[slice(start, start + CHUNK)])
            means.append((self.centre + self.scale * said.mixed(self.weights)).astype(np.float32))
            halves.append((self.scale * self.factor * self.spread(said.doubts)).astype(np.float32))
        return np.concatenate(means), np.concatenate(halves)
