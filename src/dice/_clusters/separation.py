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
#: Cells of each cluster that a test looks at, and fewest cells of each that a discriminant can be learned from.
TESTED_CELLS, FEWEST_FOR_DISCRIMINANT = 300, 3
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
        if by_depth and max(by_depth) < LEFT:
            return 0.0
        found = [self._apart(first[:TESTED_CELLS], second[:TESTED_CELLS], fold) for fold in self.folds]
        return float(np.clip(np.mean(found, axis=0).min(), 0, MOST_SEPARATE))

    def _apart(self, first: Codes, second: Codes, fold: Mask) -> tuple[float, float]:
        """Separation by the spread of cells, and by halves."""
        scores = self.scores(first, second, fold)
        if scores is None:
            return 0.0, 0.0
        member, cells, halves = scores
        spread = np.sqrt((cells[member].var(ddof=1) + cells[~member].var(ddof=1)) / 2)
        by_spread = (cells[member].mean() - cells[~member].mean()) / max(spread, 1e-12)
        return by_spread, float(np.sqrt(self.depth) * separation(_agreed(halves > 0, member)))

    def scores(self, first: Codes, second: Codes, fold: Mask) -> tuple[Mask, Floats, Floats] | None:
        """Scores of the cells (n,) and of their halves (n, s, 2) by a discriminant that other cells have taught.

        Cells that are a `member` (n,) of the second cluster score above 0. None where there are too few cells.
        """
        cells = np.concatenate([first, second])
        member, fold = np.arange(len(cells)) >= len(first), fold[cells]
        whole, halves = self.whole[cells].astype(np.float64), self.halves[cells].astype(np.float64)
        score, score_halves = np.zeros(len(cells)), np.zeros(halves.shape[:3])
        for taught in (fold, ~fold):
            if min((taught & member).sum(), (taught & ~member).sum()) < FEWEST_FOR_DISCRIMINANT:
                return None
            direction, middle = _discriminant(whole[taught & ~member], whole[taught & member])
            score[~taught] = (whole[~taught] - middle) @ direction
            # Halves are closer to the mean of all cells: they have a middle of their own.
            between = (halves[taught & member].mean((0, 1, 2)) + halves[taught & ~member].mean((0, 1, 2))) / 2
            score_halves[~taught] = (halves[~taught] - between) @ direction
        return member, score, score_halves


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
