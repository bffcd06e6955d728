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
#: Parts of the cells: each is judged by a discriminant that all others have taught.
CELL_FOLDS = 10
#: Share of the mean variance that is added to the covariance of a discriminant.
SHRINKING = 0.2
#: Share of the squared distance between two clusters that must be left once depth is taken away. Counts of one profile
#: at the depths of bmmc's cells left .004 of the denoised and .02 of the projected distance; clusters of bmmc and of
#: pancreas left .3 and .65 or more.
LEFT = 0.1
#: Separations of two normal clusters, and the share of their cells in the middle third of the way between their means.
#: It rises up to the first one: a continuum has as many cells there or more.
SEPARATIONS = np.linspace(np.sqrt(6 * np.log(2)), MOST_SEPARATE, 500)
IN_BETWEEN = norm.cdf(2 * SEPARATIONS / 3) - norm.cdf(SEPARATIONS / 3)


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
    def folds(self) -> Codes:
        """The part (n,) that every cell is in."""
        return np.random.default_rng(0).integers(CELL_FOLDS, size=len(self.whole))

    def apart(self, first: Codes, second: Codes) -> float:
        """Separation of two clusters of cells: by the cells themselves and by independent halves, the smaller one.

        Cells tell clusters from a continuum, and halves tell them from noise that shaped the clusters. Clusters that
        depth alone sets apart have no separation.
        """
        by_depth = [_left(*(part[cells].mean(0) for part in space for cells in (first, second)))
                    for space in self.spaces]  # fmt: skip
        first, second = first[:TESTED_CELLS], second[:TESTED_CELLS]
        if (by_depth and max(by_depth) < LEFT) or min(len(first), len(second)) < 2 * FEWEST_FOR_DISCRIMINANT:
            return 0.0
        cells = np.concatenate([first, second])
        member, halves = np.arange(len(cells)) >= len(first), self.halves[cells]
        score = _scores(self.whole[cells][:, None], member, self.folds[cells])
        # Halves have more noise, and another discriminant.
        score_halves = _scores(halves.reshape(len(cells), -1, halves.shape[-1]), member, self.folds[cells])
        if score is None or score_halves is None:
            return 0.0
        by_cells = lower_bound(distance(score[~member, 0], score[member, 0]), len(first), len(second))
        agreed = _agreed(score_halves.reshape(halves.shape[:3]) > 0, member)
        by_halves = float(np.sqrt(self.depth) * separation(agreed))
        return float(np.clip(min(by_cells, by_halves), 0, MOST_SEPARATE))


def distance(first: Floats, second: Floats) -> float:
    """Separation of the scores of two clusters: the mean of two measures that are the same for normal clusters.

    One is the distance of the means in units of the spread. The other one counts the cells in between: a continuum has
    many, also where it is bent, so that its ends are far apart.
    """
    shift, middle = second.mean() - first.mean(), (first.mean() + second.mean()) / 2
    spread = np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)
    between = np.mean([(np.abs(scores - middle) < shift / 6).mean() for scores in (first, second)])
    by_border = np.interp(-between, -IN_BETWEEN, SEPARATIONS) if shift > 0 else 0.0
    return float(shift / max(float(spread), 1e-12) + by_border) / 2


def lower_bound(distance: float, n_first: int, n_second: int) -> float:
    """Lower end of a one-sided 95 % interval of a distance of two means in units of the spread."""
    means, spreads = 1 / n_first + 1 / n_second, 1 / (n_first - 1) + 1 / (n_second - 1)
    return float(distance - norm.isf(0.05) * np.sqrt(means + distance**2 / 8 * spreads))


def _scores(values: Floats, member: Mask, folds: Codes) -> Floats | None:
    """Scores (n, m) of m measurements (n, m, k) of cells, by the discriminant of Fisher that other `folds` have taught.

    Cells that are a `member` (n,) of the second cluster score above 0. None where there are too few cells.
    """
    values = values - values.mean((0, 1), dtype=np.float64)
    # Numbers, sums and products (2, CELL_FOLDS, ...) of the values in each part of a cluster, and in all its others.
    parts = [values[(folds == fold) & side].reshape(-1, values.shape[-1])
             for side in (~member, member) for fold in range(CELL_FOLDS)]  # fmt: skip
    known = zip(*((len(part), part.sum(0), part.T @ part) for part in parts), strict=True)
    own = (np.reshape(one, (2, CELL_FOLDS, *np.shape(one[0]))) for one in known)
    n, sums, products = (one.sum(1, keepdims=True) - one for one in own)
    if n.min() < FEWEST_FOR_DISCRIMINANT * values.shape[1]:
        return None
    means = sums / n[..., None]
    covariance = (products - n[..., None, None] * means[..., :, None] * means[..., None, :]) / (n - 1)[..., None, None]
    shift, middle = means[1] - means[0], means.mean(0)
    direction = np.linalg.solve(shrunken(covariance.mean(0)), shift[..., None])[..., 0]
    direction /= np.sqrt(np.maximum((direction * shift).sum(-1, keepdims=True), 1e-12))
    return np.einsum("nmk,nk->nm", values - middle[folds][:, None], direction[folds])


def shrunken(covariance: Floats) -> Floats:
    """Covariance (..., k, k), shrunken to a multiple of the identity."""
    k = covariance.shape[-1]
    trace = np.trace(covariance, axis1=-2, axis2=-1)[..., None, None]
    return np.asarray((1 - SHRINKING) * covariance + (SHRINKING * trace / k + 1e-12) * np.eye(k))


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
