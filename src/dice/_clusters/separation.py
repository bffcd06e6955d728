"""Measure how far two clusters are apart, by cells and counts that were not used to learn the measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm

from dice._types import Codes, Floats, Mask

#: Separation of the two halves of an even continuum of any length: the halves of a uniform variable have means that are
#: sqrt(12) of their standard deviations apart (those of a normal variable 2.65). Clusters must be further apart.
CONTINUUM = float(np.sqrt(12))
#: Separations are capped here: at 10, one cell in three million is placed wrongly.
MOST_SEPARATE = 10.0
#: Maximum number of cells of each cluster in a test, and minimum number to learn a discriminant from.
TESTED_CELLS, FEWEST_FOR_DISCRIMINANT = 600, 3
#: Number of folds: the cells of each are scored by a discriminant learned from the others.
CELL_FOLDS = 10
#: Share of the mean variance that is added to the covariance of a discriminant.
SHRINKING = 0.2
#: Counts of the common profile that are added to a profile, as a mean over genes.
PSEUDO_COUNT = 0.5
#: Smallest share of the squared distance of two clusters that depth must not explain. For counts of one profile at the
#: depths of bmmc's cells it was .004 (denoised) and .02 (projected); for clusters of bmmc and pancreas .3 and more.
LEFT = 0.1
#: Separations of two normal clusters, and the share of their cells in the middle third between their means. The share
#: falls from the first separation on; a continuum has as many cells there or more.
SEPARATIONS = np.linspace(np.sqrt(6 * np.log(2)), MOST_SEPARATE, 500)
IN_BETWEEN = norm.cdf(2 * SEPARATIONS / 3) - norm.cdf(SEPARATIONS / 3)


def agreement(separation: Floats | float) -> Floats:
    """Return the share of cells that two measurements place in the same one of two clusters, 0.5 by chance.

    Each of two normal clusters at this separation loses a share e of its cells to the other.
    """
    error = norm.cdf(-np.asarray(separation, dtype=np.float64) / 2)
    return np.asarray(1 - 2 * error * (1 - error))


def separation(agreed: Floats | float) -> Floats:
    """Return the separation at which two measurements agree for this share of the cells: the inverse of `agreement`."""
    error = (1 - np.sqrt(np.clip(2 * np.asarray(agreed, dtype=np.float64) - 1, 0, 1))) / 2
    return np.asarray(np.minimum(-2 * norm.ppf(np.clip(error, 1e-12, 0.5)), MOST_SEPARATE))


@dataclass(frozen=True)
class Measured:
    """Cells and repeated measurements of them, in an order that does not depend on the file."""

    #: Denoised cells (n, k), and s pairs of independent measurements of them (n, s, 2, k).
    whole: Floats
    halves: Floats
    #: Pairs of embeddings (n, k): of the cells, and of simulated cells with the same depths and one profile.
    spaces: tuple[tuple[Floats, Floats], ...] = ()
    #: Depth of the cells in units of the depth of their halves.
    depth: float = 2.0
    #: Counts (n, d) of the two halves of the cells, for the first pair of measurements.
    counts: tuple[sparse.csr_array, ...] = ()

    @cached_property
    def folds(self) -> Codes:
        """The fold (n,) of every cell."""
        return np.random.default_rng(0).integers(CELL_FOLDS, size=len(self.whole))

    def apart(self, first: Codes, second: Codes) -> float:
        """Return the separation of two clusters, in latents or in genes, whichever is larger.

        The latents average over the genes of a program and serve for most pairs. The genes serve for profiles that
        differ in few genes, which latents of log-expression blur. Clusters that differ only in depth have a separation
        of 0.
        """
        by_depth = [_left(*(part[cells].mean(0) for part in space for cells in (first, second)))
                    for space in self.spaces]  # fmt: skip
        first, second = first[:TESTED_CELLS], second[:TESTED_CELLS]
        if (by_depth and max(by_depth) < LEFT) or min(len(first), len(second)) < 2 * FEWEST_FOR_DISCRIMINANT:
            return 0.0
        cells = np.concatenate([first, second])
        member, folds, halves = np.arange(len(cells)) >= len(first), self.folds[cells], self.halves[cells]
        score = latent_scores(self.whole[cells][:, None], member, folds)
        # Halves have more noise, and another discriminant.
        score_halves = latent_scores(halves.reshape(len(cells), -1, halves.shape[-1]), member, folds)
        if score is None or score_halves is None:
            return 0.0
        found = self._separation(score[:, 0], score_halves.reshape(halves.shape[:3]), member)
        if self.counts:
            scores = gene_scores([part[cells] for part in self.counts], member, folds)
            found = max(found, self._separation(scores.sum(1), scores[:, None], member))
        return float(np.clip(found, 0, MOST_SEPARATE))

    def _separation(self, score: Floats, score_halves: Floats, member: Mask) -> float:
        """Return the separation of cells by scores (n,) or of their halves by scores (n, s, 2), whichever is smaller.

        The cells tell clusters from a continuum. The halves tell clusters from noise.
        """
        by_cells = lower_bound(distance(score[~member], score[member]), int((~member).sum()), int(member.sum()))
        return min(by_cells, float(np.sqrt(self.depth) * separation(_agreed(score_halves > 0, member))))


def distance(first: Floats, second: Floats) -> float:
    """Return the separation of the scores of two clusters: the mean of two measures that agree for normal clusters.

    One is the distance of the means in units of the spread. The other one counts the cells in between. A continuum has
    many such cells, even if it is bent and its ends are far apart.
    """
    shift, middle = second.mean() - first.mean(), (first.mean() + second.mean()) / 2
    spread = np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)
    between = np.mean([(np.abs(scores - middle) < shift / 6).mean() for scores in (first, second)])
    by_border = np.interp(-between, -IN_BETWEEN, SEPARATIONS) if shift > 0 else 0.0
    return float(shift / max(float(spread), 1e-12) + by_border) / 2


def lower_bound(distance: float, n_first: int, n_second: int) -> float:
    """Return the lower end of a one-sided 95 % interval of a distance of two means in units of the spread."""
    means, spreads = 1 / n_first + 1 / n_second, 1 / (n_first - 1) + 1 / (n_second - 1)
    return float(distance - norm.isf(0.05) * np.sqrt(means + distance**2 / 8 * spreads))


def latent_scores(values: Floats, member: Mask, folds: Codes) -> Floats | None:
    """Return scores (n, m) of m measurements (n, m, k) of cells by Fisher's discriminant, learned from other `folds`.

    Cells that are a `member` (n,) of the second cluster score above 0. Return None if there are too few cells.
    """
    values = values - values.mean((0, 1), dtype=np.float64)
    # Numbers, sums and products (2, CELL_FOLDS, ...) of the values in each fold of a cluster, then in all other folds.
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
    """Return the scores (n, 2) of the two halves of the counts (n, d) of cells. Their sum is the score of all counts.

    The score is the log-likelihood ratio of two Poisson profiles, learned from the counts of cells in other `folds`:
    the best score for profiles that are known. Cells that are a `member` (n,) of the second cluster score above 0.
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
    """Return a covariance (..., k, k) shrunken towards a multiple of the identity."""
    k = covariance.shape[-1]
    trace = np.trace(covariance, axis1=-2, axis2=-1)[..., None, None]
    return np.asarray((1 - SHRINKING) * covariance + (SHRINKING * trace / k + 1e-12) * np.eye(k))


def _agreed(placed: NDArray[np.bool_], member: Mask) -> float:
    """Return the agreement of two placements (n, s, 2) beyond chance as a share. Both clusters weigh the same."""
    weight = np.where(member, 0.5 / member.sum(), 0.5 / (~member).sum())
    share = np.einsum("n,nsh->sh", weight, placed)
    same = np.einsum("n,ns->s", weight, placed[..., 0] == placed[..., 1])
    chance = share.prod(1) + (1 - share).prod(1)
    kappa = np.mean((same - chance) / np.maximum(1 - chance, 1e-12))
    return float(0.5 + np.clip(kappa, 0, 1) / 2)


def _left(first: Floats, second: Floats, alike_first: Floats, alike_second: Floats) -> float:
    """Return the share of the squared distance of two means that their depths do not explain.

    The distance that depths explain is that of simulated cells with the same depths.
    """
    shift = second - first
    rest = shift - (alike_second - alike_first)
    return float(rest @ rest / max(float(shift @ shift), 1e-12))
