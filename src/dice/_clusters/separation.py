"""How far two clusters are apart, judged by cells and counts that did not shape the judgement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from dice._types import Codes, Floats, Mask

#: Separation of the two halves of an even continuum, whatever its length and wherever noise comes from: a uniform
#: variable has halves whose means are sqrt(12) of their own standard deviations apart. The halves of a normal variable
#: are 2.65 apart. Clusters have to be further apart than that.
CONTINUUM = float(np.sqrt(12))
#: Largest separation that is told: at 10, one cell in three million is placed wrongly.
MOST_SEPARATE = 10.0
#: Most cells of each cluster that a test looks at, and fewest cells of each that a discriminant can be learned from.
TESTED_CELLS, FEWEST_FOR_DISCRIMINANT = 600, 3
#: Random halves of the cells that a test is averaged over.
REPEATS = 4
#: Share of the mean variance that is added to the covariance of a discriminant.
SHRINKING = 0.2
#: Share of the squared distance between two clusters that must be left once depth is taken away. Counts of one profile
#: at the depths of bmmc's cells left .004 of the denoised and .02 of the projected distance; clusters of bmmc and of
#: pancreas left .3 and .65 or more.
LEFT = 0.1


def agreement(separation: Floats | float) -> Floats:
    """Share of cells that two measurements place in the same one of two clusters, 0.5 for chance.

    Each of two normal clusters at this separation loses a share e of its cells to the other.
    """
    error = norm.cdf(-np.asarray(separation, dtype=np.float64) / 2)
    return np.asarray(1 - 2 * error * (1 - error))


def separation(agreed: Floats | float) -> Floats:
    """The separation at which two measurements agree for this share of the cells: the inverse of `agreement`."""
    error = (1 - np.sqrt(np.clip(2 * np.asarray(agreed, dtype=np.float64) - 1, 0, 1))) / 2
    return np.asarray(np.minimum(-2 * norm.ppf(np.clip(error, 1e-12, 0.5)), MOST_SEPARATE))


@dataclass(frozen=True)
class Measured:
    """Cells and repeated measurements of them, in an order that belongs to the cells and not to the file."""

    #: Denoised cells (n, k) and two independent measurements of them, some times (n, s, 2, k).
    whole: Floats
    halves: Floats
    #: Pairs of embeddings (n, k): of cells, and of cells that have the same depths and are otherwise alike.
    spaces: tuple[tuple[Floats, Floats], ...] = ()
    #: Depth of the cells in units of the depth of their halves.
    depth: float = 2.0

    @cached_property
    def folds(self) -> NDArray[np.bool_]:
        """Random halves of the cells (repeats, n): discriminants learned from one half are applied to the other."""
        return np.random.default_rng(0).random((REPEATS, len(self.whole))) < 0.5

    def apart(self, first: Codes, second: Codes) -> float:
        """Separation of two clusters of cells: by the spread of cells and by independent halves, the smaller one.

        The spread tells clusters from a continuum, and halves tell them from noise that shaped the clusters. Clusters
        that depth alone sets apart have no separation.
        """
        by_depth = [_left(*(part[cells].mean(0) for part in space for cells in (first, second)))
                    for space in self.spaces]  # fmt: skip
        first, second = first[:TESTED_CELLS], second[:TESTED_CELLS]
        if (by_depth and max(by_depth) < LEFT) or min(len(first), len(second)) < 2 * FEWEST_FOR_DISCRIMINANT:
            return 0.0
        by_spread, by_halves = np.mean([self._apart(first, second, fold) for fold in self.folds], axis=0)
        return float(np.clip(min(lower_bound(by_spread, len(first), len(second)), by_halves), 0, MOST_SEPARATE))

    def _apart(self, first: Codes, second: Codes, fold: Mask) -> tuple[float, float]:
        """Separation by the spread of cells, and by halves."""
        cells = np.concatenate([first, second])
        member = np.arange(len(cells)) >= len(first)
        halves = self.halves[cells]
        score = _scores(self.whole[cells][:, None], member, fold[cells])
        # Halves have more noise, and another discriminant.
        score_halves = _scores(halves.reshape(len(cells), -1, halves.shape[-1]), member, fold[cells])
        if score is None or score_halves is None:
            return 0.0, 0.0
        spread = np.sqrt((score[member].var(ddof=1) + score[~member].var(ddof=1)) / 2)
        by_spread = float(score[member].mean() - score[~member].mean()) / max(float(spread), 1e-12)
        agreed = _agreed(score_halves.reshape(halves.shape[:3]) > 0, member)
        return by_spread, float(np.sqrt(self.depth) * separation(agreed))


def lower_bound(distance: float, n_first: int, n_second: int) -> float:
    """Lower end of a one-sided 95 % interval of a distance of two means in units of the spread."""
    means, spreads = 1 / n_first + 1 / n_second, 1 / (n_first - 1) + 1 / (n_second - 1)
    return float(distance - norm.isf(0.05) * np.sqrt(means + distance**2 / 8 * spreads))


def _scores(values: Floats, member: Mask, fold: Mask) -> Floats | None:
    """Scores (n, m) of m measurements (n, m, k) of cells, by a discriminant that other cells have taught.

    Cells that are a `member` (n,) of the second cluster score above 0. None where there are too few cells.
    """
    values = values.astype(np.float64)
    scores = np.zeros(values.shape[:2])
    for taught in (fold, ~fold):
        if min((taught & member).sum(), (taught & ~member).sum()) < FEWEST_FOR_DISCRIMINANT:
            return None
        first, second = (np.concatenate(values[taught & side]) for side in (~member, member))
        direction, middle = _discriminant(first, second)
        scores[~taught] = (values[~taught] - middle) @ direction
    return scores


def _discriminant(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Fisher's direction from one cluster (n, k) to another, in units of their spread, and the point between them."""
    means = first.mean(0), second.mean(0)
    shift = means[1] - means[0]
    covariance = (np.cov(first.T) + np.cov(second.T)) / 2
    k = len(shift)
    covariance = (1 - SHRINKING) * covariance + (SHRINKING * np.trace(covariance) / k + 1e-12) * np.eye(k)
    direction = np.linalg.solve(covariance, shift)
    return direction / np.sqrt(max(direction @ shift, 1e-12)), (means[0] + means[1]) / 2


def _agreed(placed: NDArray[np.bool_], member: Mask) -> float:
    """Agreement of two placements (n, s, 2) beyond chance, as a share; both clusters have the same weight."""
    weight = np.where(member, 0.5 / member.sum(), 0.5 / (~member).sum())
    share = np.einsum("n,nsh->sh", weight, placed)
    same = np.einsum("n,ns->s", weight, placed[..., 0] == placed[..., 1])
    chance = share.prod(1) + (1 - share).prod(1)
    kappa = np.mean((same - chance) / np.maximum(1 - chance, 1e-12))
    return float(0.5 + np.clip(kappa, 0, 1) / 2)


def _left(first: Floats, second: Floats, alike_first: Floats, alike_second: Floats) -> float:
    """Share of the squared distance of two means that is not that of cells which differ in depth alone."""
    shift = second - first
    rest = shift - (alike_second - alike_first)
    return float(rest @ rest / max(float(shift @ shift), 1e-12))
