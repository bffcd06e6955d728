"""Predict features from latents by ridge regression with a Gaussian kernel, and by nearest neighbours.

Both use the projection and the posterior samples, which gives four candidates.

Features may be missing in some cells (NaN). Each feature is learned from the cells that have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import NearestNeighbors

from dice._model.arrays import subsample
from dice._types import Codes, Floats

#: Maximum number of kernel centres. Median correlation of proteins (bmmc, random split, one seed) with 1,500
#: of them .718, with all 3,600 cells .722; the time of a fit grows with the square.
MOST_CENTRES = 1000
#: Width of the kernel in units of the mean standard deviation of the latents, and penalty. bmmc / Liu, random split,
#: one seed: widths 1, 2 and 4 have .722 / .581, .706 / .571 and .688 / .558; plain ridge .682 / .551.
KERNEL_WIDTH, PENALTY = 1.0, 0.5
#: Number of neighbours. With 15 or 30 of them: .528 or .540 on Liu, .679 or .671 on bmmc.
REGRESSION_NEIGHBORS = 20
CANDIDATES = ("ridge on projection", "ridge on denoised", "neighbours on projection", "neighbours on denoised")


@dataclass(frozen=True)
class Ridge:
    """Ridge regression with a Gaussian kernel. The prediction is kernel(cell, centres) @ slopes + offset."""

    #: Centres (m, k) in units of `scale`, the scale of the latents.
    centres: Floats
    scale: float
    slopes: Floats
    offset: Floats

    @classmethod
    def fit(cls, x: Floats, values: Floats, *, penalty: float = PENALTY) -> Ridge:
        """Learn features (n, F) of cells (n, k), with all cells or a subsample as centres.

        With all cells as centres this is kernel ridge regression: slopes (K + penalty I)^-1 values.
        """
        scale = float(np.sqrt(x.var(0).mean())) or 1.0
        x = x / scale
        centres = subsample(x, MOST_CENTRES)
        inputs, inner = kernel(x, centres), kernel(centres, centres)
        slopes, offset = np.zeros((len(centres), values.shape[1])), np.zeros(values.shape[1])
        for cells, features in _measured_alike(values):
            part, target = inputs[cells], values[np.ix_(cells, features)].astype(np.float64)
            offset[features] = target.mean(0)
            normal = part.T @ part + penalty * inner
            # Cells may be identical, and rounding must not make the matrix indefinite.
            normal[np.diag_indices_from(normal)] += 1e-8 * np.trace(normal) / len(normal)
            slopes[:, features] = linalg.solve(normal, part.T @ (target - offset[features]), assume_a="pos")
        return cls(centres, scale, slopes, offset)

    def __call__(self, x: Floats) -> Floats:
        """Predict features (n, F) of cells (n, k)."""
        return kernel(x / self.scale, self.centres) @ self.slopes + self.offset


def kernel(a: Floats, b: Floats) -> Floats:
    """Return the Gaussian kernel (n, m) of cells. Its width grows with the number of latents, as distances do."""
    # In double precision: the normal equations of float32 kernels are not positive definite.
    return rbf_kernel(a.astype(np.float64), b.astype(np.float64), gamma=1 / (2 * KERNEL_WIDTH**2 * a.shape[1]))


def _measured_alike(values: Floats) -> Iterator[tuple[Codes, Codes]]:
    """Yield sets of features that were measured in the same cells, as (cells, features)."""
    patterns, which = np.unique(~np.isnan(values), axis=1, return_inverse=True)
    for i in np.flatnonzero(patterns.any(0)):
        yield np.flatnonzero(patterns[:, i]), np.flatnonzero(which.ravel() == i)


@dataclass(frozen=True)
class Neighbors:
    """Nearest-neighbour prediction from known cells (m, k) and their features (m, F)."""

    cells: Floats
    values: Floats

    def __call__(self, samples: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation (n, F) of features among the neighbours of all samples (n, S, k).

        The deviation is small only if the posterior is certain and similar cells have similar features.
        """
        weights, known = neighbor_weights(samples, self.cells), ~np.isnan(self.values)
        filled, n_cells = np.nan_to_num(self.values), np.maximum(known.sum(0), 1)
        usual = filled.sum(0) / n_cells
        found = weights @ known.astype(np.float64)
        total = np.maximum(found, 1e-12)
        mean = np.where(found > 0, (weights @ filled) / total, usual)
        square = np.where(found > 0, (weights @ np.square(filled)) / total, np.square(filled).sum(0) / n_cells)
        return mean, np.sqrt(np.maximum(square - mean**2, 0))


def neighbor_weights(samples: Floats, cells: Floats) -> sparse.csr_array:
    """Return the share (n, m) of each known cell (m, k) among the neighbours of a cell's samples (n, S, k)."""
    n, _, k = samples.shape
    if not n:
        return sparse.csr_array((0, len(cells)))
    search = NearestNeighbors(n_neighbors=min(REGRESSION_NEIGHBORS, len(cells))).fit(cells)
    nearest = search.kneighbors(samples.reshape(-1, k), return_distance=False).reshape(n, -1)
    share = np.full(nearest.size, 1 / nearest.shape[1])
    return sparse.csr_array((share, (np.repeat(np.arange(n), nearest.shape[1]), nearest.ravel())), (n, len(cells)))


@dataclass(frozen=True)
class View:
    """Inputs of the candidates: scaled projection (n, k), posterior mean (n, k) and samples (n, S, k)."""

    y: Floats
    mean: Floats
    samples: Floats

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, cells: Codes | slice) -> View:
        return View(self.y[cells], self.mean[cells], self.samples[cells])


@dataclass(frozen=True)
class Predictions:
    """Predictions of all candidates (J, n, F), and measures of their uncertainty (B, n, F)."""

    values: Floats
    doubts: Floats

    @classmethod
    def joined(cls, parts: list[Predictions]) -> Predictions:
        """Concatenate several groups of cells."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("values", "doubts")))

    def mixed(self, weights: Floats) -> Floats:
        """Return the weighted mean (n, F) with weights (F, J)."""
        return np.einsum("fj,jnf->nf", weights, self.values)


@dataclass(frozen=True)
class Candidates:
    """All candidates, fitted to the same cells."""

    ridges: tuple[Ridge, Ridge]
    neighbors: tuple[Neighbors, Neighbors]

    @classmethod
    def fit(cls, cells: View, values: Floats) -> Candidates:
        """Fit all candidates to features (n, F) of cells."""
        ridges = Ridge.fit(cells.y, values), Ridge.fit(cells.mean, values)
        return cls(ridges, (Neighbors(cells.y, values), Neighbors(cells.mean, values)))

    def __call__(self, cells: View) -> Predictions:
        """Predict other cells. Predictions from clean latents are averaged over posterior samples."""
        denoised = np.mean([self.ridges[1](cells.samples[:, i]) for i in range(cells.samples.shape[1])], axis=0)
        near, spread = self.neighbors[0](cells.y[:, None])
        clean, clean_spread = self.neighbors[1](cells.samples)
        values = np.stack([self.ridges[0](cells.y), denoised, near, clean])
        # The spread among neighbours, and the spread among candidates.
        doubts = np.stack([np.sqrt((spread**2 + clean_spread**2) / 2), values.std(0)])
        return Predictions(values, doubts)
