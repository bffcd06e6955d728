"""Measure how far apart two clusters are, on cells and counts that were not used to learn the measure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm

from dice._types import Codes, Floats, Mask

#: Separation of the two halves of an even continuum of any length. The halves of a uniform variable have means that are
#: sqrt(12) = 3.46 of their standard deviations apart, those of a normal variable 2.65. Clusters must be further apart.
CONTINUUM = float(np.sqrt(12))
#: Separations are capped at this value, at which one cell in three million is placed wrongly.
MOST_SEPARATE = 10.0
#: Maximum number of cells of each cluster in a test, and minimum number to learn a discriminant from.
TESTED_CELLS, FEWEST_FOR_DISCRIMINANT = 600, 3
#: Minimum number of cells of each cluster in a test.
TESTABLE = 2 * FEWEST_FOR_DISCRIMINANT
#: Number of folds. The cells of each fold are scored by a discriminant that is learned from the other folds.
CELL_FOLDS = 10
#: Share of the mean variance that is added to the covariance of a discriminant.
SHRINKING = 0.2
#: Mean pseudo-count of a gene. The pseudo-counts of a profile have the proportions of the common profile.
PSEUDO_COUNT = 0.5
#: Two clusters are different only if depth leaves at least this share of their squared distance unexplained. For counts
#: of one profile at the depths of bmmc's cells, the share was .004 (denoised) and .02 (projected); for clusters of bmmc
#: and pancreas it was .3 and more.
LEFT = 0.1
#: Separations of two normal clusters, and the share of their cells in the middle third between their means. The share
#: falls from the first separation on. A continuum has at least the largest share.
SEPARATIONS = np.linspace(np.sqrt(6 * np.log(2)), MOST_SEPARATE, 500)
IN_BETWEEN = norm.cdf(2 * SEPARATIONS / 3) - norm.cdf(SEPARATIONS / 3)


def agreement(separation: Floats | float) -> Floats:
    """Return the share of cells that two measurements place in the same cluster, given the separation of two clusters.

    Both clusters are assumed to be normal. Each measurement places the share `error` of the cells in the wrong cluster.
    The result is 0.5 for clusters that are not separate.
    """
    error = norm.cdf(-np.asarray(separation, dtype=np.float64) / 2)
    return np.asarray(1 - 2 * error * (1 - error))


def separation(agreed: Floats | float) -> Floats:
    """Return the separation of two clusters at which two measurements agree on this share of cells."""
    error = (1 - np.sqrt(np.clip(2 * np.asarray(agreed, dtype=np.float64) - 1, 0, 1))) / 2
    return np.asarray(np.minimum(-2 * norm.ppf(np.clip(error, 1e-12, 0.5)), MOST_SEPARATE))


@dataclass(frozen=True)
class Measured:
    """Cells and repeated measurements of them, in PCA units. The order of the cells does not depend on the file."""

    #: Denoised cells (n, k), and s pairs of independent measurements of them (n, s, 2, k).
    whole: Floats
    halves: Floats
    #: Pairs of embeddings (n, k): the cells, and simulated cells with the same depths and one profile; first denoised,
    #: then projected. Both are needed. If depth predicts the cell type, the denoiser moves a simulated cell of that
    #: depth to that type. Projections, in contrast, change much with depth alone.
    spaces: tuple[tuple[Floats, Floats], ...] = ()
    #: Ratio of the depth of a cell to the depth of its halves.
    depth: float = 2.0
    #: Counts (n, d) of the two halves of every cell, for the first pair of measurements.
    counts: tuple[sparse.csr_array, ...] = ()

    def moved(self, shift: Floats) -> Self:
        """Return denoised cells and halves moved by the shift (n, k) that aligns batches. Counts cannot be moved."""
        whole, halves = self.whole + shift.astype(np.float32), self.halves + shift.astype(np.float32)[:, None, None]
        spaces = ((whole, self.spaces[0][1]), *self.spaces[1:]) if self.spaces else ()
        return replace(self, whole=whole, halves=halves, spaces=spaces, counts=())

    @cached_property
    def folds(self) -> Codes:
        """The fold (n,) of every cell."""
        return np.random.default_rng(0).integers(CELL_FOLDS, size=len(self.whole))

    def apart(self, first: Codes, second: Codes) -> float:
        """Return the separation of two clusters, by latents or by genes, whichever is larger.

        Latents average over the genes of a program and are better for most pairs. Genes are better for profiles that
        differ in few genes, because latents blur such differences. Clusters that differ only in depth have a
        separation of 0.
        """
        by_depth = [_left(*(part[cells].mean(0) for part in space for cells in (first, second)))
                    for space in self.spaces]  # fmt: skip
        first, second = first[:TESTED_CELLS], second[:TESTED_CELLS]
        if (by_depth and max(by_depth) < LEFT) or min(len(first), len(second)) < TESTABLE:
            return 0.0
        cells = np.concatenate([first, second])
        member, folds, halves = np.arange(len(cells)) >= len(first), self.folds[cells], self.halves[cells]
        score = latent_scores(self.whole[cells][:, None], member, folds)
        # Halves have more noise, so they need a discriminant of their own.
        score_halves = latent_scores(halves.reshape(len(cells), -1, halves.shape[-1]), member, folds)
        if score is None or score_halves is None:
            return 0.0
        found = self._separation(score[:, 0], score_halves.reshape(halves.shape[:3]), member)
        if self.counts:
            scores = gene_scores([part[cells] for part in self.counts], member, folds)
            found = max(found, self._separation(scores.sum(1), scores[:, None], member))
        return float(np.clip(found, 0, MOST_SEPARATE))

    def _separation(self, score: Floats, score_halves: Floats, member: Mask) -> float:
        """Return the smaller of two separations: one from scores (n,) of cells, one from scores (n, s, 2) of halves.

        The separation of cells tells clusters from a continuum. The separation of halves tells clusters from noise.
        """
        by_cells = lower_bound(distance(score[~member], score[member]), int((~member).sum()), int(member.sum()))
        return min(by_cells, float(np.sqrt(self.depth) * separation(_agreed(score_halves > 0, member))))


def distance(first: Floats, second: Floats) -> float:
    """Return the separation of two clusters by their scores. The separation is the mean of two measures.

    The first measure is the distance of the means in units of the spread. The second follows from the share of cells
    between the means: a continuum has many such cells, even if it is bent and its ends are far apart. Both measures
    agree for normal clusters.
    """
    shift, middle = second.mean() - first.mean(), (first.mean() + second.mean()) / 2
    spread = np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)
    between = np.mean([(np.abs(scores - middle) < shift / 6).mean() for scores in (first, second)])
    by_border = np.interp(-between, -IN_BETWEEN, SEPARATIONS) if shift > 0 else 0.0
    return float(shift / max(float(spread), 1e-12) + by_border) / 2


def lower_bound(distance: float, n_first: int, n_second: int) -> float:
    """Return the lower end of a one-sided 95 % interval for the distance of two means in units of the spread."""
    means, spreads = 1 / n_first + 1 / n_second, 1 / (n_first - 1) + 1 / (n_second - 1)
    return float(distance - norm.isf(0.05) * np.sqrt(means + distance**2 / 8 * spreads))


def latent_scores(values: Floats, member: Mask, folds: Codes) -> Floats | None:
    """Return scores (n, m) of m measurements (n, m, k) of each cell. Fisher's discriminant is learned on other `folds`.

    `member` (n,) is True for cells of the second cluster, which score above 0. Return None if there are too few cells.
    """
    values = values - values.mean((0, 1), dtype=np.float64)
    # Numbers, sums and products of values (2, CELL_FOLDS, ...), by cluster: within each fold, then in all other folds.
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


def gene_scores(halves: Sequence[sparse.csr_array], member: Mask, folds: Codes) -> Floats:
    """Return the scores (n, 2) of the two `halves` (n, d) of the counts of cells. Their sum is the score of all counts.

    The score is the log-likelihood ratio of two Poisson profiles, which is the best score if the profiles are known.
    The profiles are learned from cells in other `folds`. `member` (n,) is True for cells of the second cluster, which
    score above 0.
    """
    n, n_genes = halves[0].shape
    own = sparse.csr_array((np.ones(n), (member * CELL_FOLDS + folds, np.arange(n))), shape=(2 * CELL_FOLDS, n))
    sums = sum((own @ part).toarray() for part in halves).reshape(2, CELL_FOLDS, n_genes)
    sums = sums.sum(1, keepdims=True) - sums
    common = sums.sum(0) + PSEUDO_COUNT
    profiles = sums + PSEUDO_COUNT * n_genes * common / common.sum(-1, keepdims=True)
    first, second = np.log(profiles / profiles.sum(-1, keepdims=True))
    ratios, scores = second - first, []
    for part in halves:
        cell = np.repeat(np.arange(n), np.diff(part.indptr))
        scores.append(np.bincount(cell, part.data * ratios[folds[cell], part.indices], minlength=n))
    return np.stack(scores, axis=1)


def shrunken(covariance: Floats) -> Floats:
    """Shrink a covariance (..., k, k) towards a multiple of the identity."""
    k = covariance.shape[-1]
    trace = np.trace(covariance, axis1=-2, axis2=-1)[..., None, None]
    return np.asarray((1 - SHRINKING) * covariance + (SHRINKING * trace / k + 1e-12) * np.eye(k))


def _agreed(placed: NDArray[np.bool_], member: Mask) -> float:
    """Return the share of cells whose two halves are placed in the same cluster, corrected for chance.

    `placed` (n, s, 2) is the placement of the halves. Both clusters have equal weight.
    """
    weight = np.where(member, 0.5 / member.sum(), 0.5 / (~member).sum())
    share = np.einsum("n,nsh->sh", weight, placed)
    same = np.einsum("n,ns->s", weight, placed[..., 0] == placed[..., 1])
    chance = share.prod(1) + (1 - share).prod(1)
    kappa = np.mean((same - chance) / np.maximum(1 - chance, 1e-12))
    return float(0.5 + np.clip(kappa, 0, 1) / 2)


def _left(first: Floats, second: Floats, alike_first: Floats, alike_second: Floats) -> float:
    """Return the share of the squared distance of two cluster means that depth does not explain.

    Depth explains the distance between simulated cells that have the same depths but one common profile.
    """
    shift = second - first
    rest = shift - (alike_second - alike_first)
    return float(rest @ rest / max(float(shift @ shift), 1e-12))
