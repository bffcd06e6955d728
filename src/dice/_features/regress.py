"""Prediction of features from latents by several methods, their weighted mean, and its expected error in each cell.

There are four candidates: ridge regression with a Gaussian kernel and nearest neighbours, each on the projection and on
the clean latents (posterior mean and samples). Features may be missing in some cells (NaN). Each feature is learned
from the cells that have it.

The weights of the candidates minimise the error of the weighted mean on held-out cells. A pseudo-count shrinks them
towards equal weights, because few held-out cells cannot tell candidates apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse
from scipy.optimize import nnls
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import NearestNeighbors

from dice._model.arrays import subsample
from dice._types import Codes, Floats

#: Maximum number of kernel centres. The median correlation of proteins (bmmc, random split, one seed) was .718 with
#: 1,500 centres and .722 with all 3,600 cells. The time of a fit grows with the square of the number.
MOST_CENTRES = 1000
#: Width of the kernel, in units of the mean standard deviation of the latents, and ridge penalty. Widths of 1, 2 and 4
#: gave correlations of .722 / .581, .706 / .571 and .688 / .558 (bmmc / Liu, random split, one seed). Plain ridge
#: regression gave .682 / .551.
KERNEL_WIDTH, PENALTY = 1.0, 0.5
#: Number of neighbours. With 15 and 30 neighbours, correlations were .528 and .540 on Liu, .679 and .671 on bmmc.
REGRESSION_NEIGHBORS = 20
#: Pseudo-count of equal weights, in cells. Without it, with 100 cells and with equal weights, accuracy / macro-F1 of
#: labels were .803 / .742, .822 / .755 and .820 / .750 over 14 pairs of technologies, and .867 / .802, .873 / .802 and
#: .871 / .798 over four random splits (one seed).
BLEND_CELLS = 100.0
#: Smallest spread, as a share of the mean error. Without this limit it could be 0, because neighbours agree by chance.
SMALLEST_SPREAD = 0.2
CANDIDATES = ("ridge on projection", "ridge on denoised", "neighbours on projection", "neighbours on denoised")


class Ridge:
    """Ridge regression of features (n, F) on cells (n, k) with a Gaussian kernel.

    The centres of the kernel are all cells or a subsample. With all cells as centres, this is kernel ridge regression
    with slopes (K + PENALTY I)^-1 values. Predictions are kernel(cells, centres) @ slopes + offset.
    """

    def __init__(self, x: Floats, values: Floats) -> None:
        self.scale = float(np.sqrt(x.var(0).mean())) or 1.0
        x = x / self.scale
        self.centres = subsample(x, MOST_CENTRES)
        inputs, inner = kernel(x, self.centres), kernel(self.centres, self.centres)
        self.slopes, self.offset = np.zeros((len(self.centres), values.shape[1])), np.zeros(values.shape[1])
        for cells, features in _measured_alike(values):
            part, target = inputs[cells], values[np.ix_(cells, features)].astype(np.float64)
            self.offset[features] = target.mean(0)
            normal = part.T @ part + PENALTY * inner
            # Identical cells make the matrix singular. The ridge keeps it positive definite after rounding.
            normal[np.diag_indices_from(normal)] += 1e-8 * np.trace(normal) / len(normal)
            centred = target - self.offset[features]
            self.slopes[:, features] = linalg.solve(normal, part.T @ centred, assume_a="pos")

    def __call__(self, x: Floats) -> Floats:
        """Predict features (n, F) of cells (n, k)."""
        return kernel(x / self.scale, self.centres) @ self.slopes + self.offset


def kernel(a: Floats, b: Floats) -> Floats:
    """Return the Gaussian kernel (n, m) of cells. Its width grows with the number of latents, as distances do."""
    # Use double precision, because the normal equations of float32 kernels are not positive definite.
    return rbf_kernel(a.astype(np.float64), b.astype(np.float64), gamma=1 / (2 * KERNEL_WIDTH**2 * a.shape[1]))


def _measured_alike(values: Floats) -> Iterator[tuple[Codes, Codes]]:
    """Yield the cells and the features of each group of features that were measured in the same cells."""
    patterns, which = np.unique(~np.isnan(values), axis=1, return_inverse=True)
    for i in np.flatnonzero(patterns.any(0)):
        yield np.flatnonzero(patterns[:, i]), np.flatnonzero(which.ravel() == i)


def by_neighbors(cells: Floats, values: Floats, samples: Floats) -> tuple[Floats, Floats]:
    """Return the mean and standard deviation (n, F) of features over the neighbours of all samples (n, S, k) of a cell.

    Neighbours are known cells (m, k) with features (m, F). The standard deviation is small only if the posterior is
    certain and similar cells have similar features.
    """
    weights, known, filled = neighbor_weights(samples, cells), ~np.isnan(values), np.nan_to_num(values)
    n_cells, found = np.maximum(known.sum(0), 1), weights @ known.astype(np.float64)
    mean, square = (
        np.where(found > 0, (weights @ part) / np.maximum(found, 1e-12), part.sum(0) / n_cells)
        for part in (filled, np.square(filled))
    )
    return mean, np.sqrt(np.maximum(square - mean**2, 0))


def neighbor_weights(samples: Floats, cells: Floats) -> sparse.csr_array:
    """Return the share (n, m) of each known cell (m, k) among the neighbours of the samples (n, S, k) of each cell."""
    n, _, k = samples.shape
    if not n:
        return sparse.csr_array((0, len(cells)))
    search = NearestNeighbors(n_neighbors=min(REGRESSION_NEIGHBORS, len(cells))).fit(cells)
    nearest = search.kneighbors(samples.reshape(-1, k), return_distance=False).reshape(n, -1)
    share = np.full(nearest.size, 1 / nearest.shape[1])
    return sparse.csr_array((share, (np.repeat(np.arange(n), nearest.shape[1]), nearest.ravel())), (n, len(cells)))


@dataclass(frozen=True)
class View:
    """Inputs of the candidates in scaled units: projection (n, k), posterior mean (n, k) and samples (n, S, k)."""

    y: Floats
    mean: Floats
    samples: Floats

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, cells: Codes | slice) -> "View":
        return View(self.y[cells], self.mean[cells], self.samples[cells])


class Candidates:
    """All candidates, fitted to features (n, F) of the same cells."""

    def __init__(self, cells: View, values: Floats) -> None:
        self.cells, self.values = cells, values
        #: Ridge regressions on the projection and on the denoised cells.
        self.ridges = Ridge(cells.y, values), Ridge(cells.mean, values)

    def __call__(self, cells: View) -> tuple[Floats, Floats]:
        """Return the predictions (J, n, F) of J candidates for other cells, and B measures of uncertainty (B, n, F).

        Predictions from clean latents are averaged over posterior samples.
        """
        denoised = np.mean([self.ridges[1](cells.samples[:, i]) for i in range(cells.samples.shape[1])], axis=0)
        near, spread = by_neighbors(self.cells.y, self.values, cells.y[:, None])
        clean, clean_spread = by_neighbors(self.cells.mean, self.values, cells.samples)
        values = np.stack([self.ridges[0](cells.y), denoised, near, clean])
        # The measures of uncertainty are the spread among neighbours and the spread among candidates.
        return values, np.stack([np.sqrt((spread**2 + clean_spread**2) / 2), values.std(0)])


def mixed(weights: Floats, predicted: Floats) -> Floats:
    """Return the weighted mean (n, F) of predictions (J, n, F), with weights (F, J)."""
    return np.einsum("fj,jnf->nf", weights, predicted)


def blend_values(residuals: Floats) -> Floats:
    """Return weights (F, J) of J candidates for every feature that minimise the squared error of the weighted mean.

    Weights are not negative and sum to 1, so the error of the weighted mean is the weighted mean of the errors.
    `residuals` (J, n, F) are the errors on held-out cells, NaN where a feature was not measured. Equal weights count as
    much as `BLEND_CELLS` cells.
    """
    n_candidates = len(residuals)
    known = np.nan_to_num(np.asarray(residuals, dtype=np.float64))
    products = np.einsum("inf,jnf->fij", known, known)
    n_cells = np.maximum((~np.isnan(residuals[0])).sum(0), 1)
    size = np.trace(products, axis1=1, axis2=2)
    # If all candidates predict a feature exactly, the pull is set to 1. Any other value also gives equal weights.
    pull = np.where(size > 0, BLEND_CELLS * size / n_candidates / n_cells, 1.0)
    a = products + pull[:, None, None] * np.eye(n_candidates)
    # Minimise w'aw - 2 (1'w), then scale to the sum 1. The result minimises w'aw among all weights with the sum 1.
    weights = best_weights(a, np.ones(a.shape[:2]))
    return weights / weights.sum(1, keepdims=True)


def best_weights(a: Floats, b: Floats) -> Floats:
    """Return non-negative weights (F, J) that minimise w'aw - 2 b'w for positive definite a (F, J, J) and b (F, J)."""
    roots = np.linalg.cholesky(a)
    targets = np.linalg.solve(roots, b[..., None])[..., 0]
    return np.stack([nnls(root.T, target)[0] for root, target in zip(roots, targets, strict=True)])


class Spread:
    """Expected absolute error of cells: a constant plus a weighted sum of their uncertainties.

    The weights are not negative. They are fitted to absolute `errors` (n, F) and uncertainties `doubts` (B, n, F).
    """

    def __init__(self, errors: Floats, doubts: Floats) -> None:
        known = ~np.isnan(errors)
        inputs = np.stack([np.ones_like(errors), *doubts]) * known
        size = np.abs(np.nan_to_num(errors))
        n_cells = np.maximum(known.sum(0), 1)
        products = np.einsum("inf,jnf->fij", inputs, inputs) / n_cells[:, None, None]
        # If uncertainties are constant over cells, only this ridge makes the problem solvable.
        products += 1e-6 * np.maximum(np.trace(products, axis1=1, axis2=2), 1e-12)[:, None, None] * np.eye(len(inputs))
        #: Weights (F, 1 + B), and the smallest expected error (F,).
        self.shares = best_weights(products, np.einsum("inf,nf->fi", inputs, size) / n_cells[:, None])
        self.least = np.maximum(SMALLEST_SPREAD * size.sum(0) / n_cells, 1e-12)

    def __call__(self, doubts: Floats) -> Floats:
        """Return the expected absolute error (n, F) of other cells, given their uncertainties (B, n, F)."""
        found = self.shares[:, 0] + np.einsum("fb,bnf->nf", self.shares[:, 1:], doubts)
        return np.maximum(found, self.least)


def conformal_quantile(scores: Floats, alpha: float) -> Floats:
    """Return the value (F,) that the score of a new cell exceeds with probability at most alpha.

    This is the ceil((m + 1)(1 - alpha))-th smallest of the scores (m, F), or infinity if m is too small. NaN is
    ignored.
    """
    n = (~np.isnan(scores)).sum(0)
    rank = np.ceil((n + 1) * (1 - alpha) - 1e-9).astype(np.intp)
    ordered = np.concatenate([np.sort(scores, axis=0), np.full((1, scores.shape[1]), np.inf)])
    return ordered[np.where(rank > n, len(scores), rank - 1), np.arange(scores.shape[1])]
