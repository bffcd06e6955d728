"""Novelty scores of cells, from the projection and never from denoised latents.

Denoising with a large rho maps unseen types onto known ones, so denoised latents would hide novel cells. Known cells
form groups, by label or by cluster. A cell is novel if it is far from all groups and if its group is uncertain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dice._model.logistic import LATENT_STRENGTH, Logistic, fit_logistic
from dice._types import Floats

#: Maximum number of clusters of cells without labels, and minimum number of cells per cluster.
N_CLUSTERS, CLUSTER_SIZE = 15, 20
#: Share of the mean variance that is added to the variance of each direction.
RIDGE = 1e-3
#: Smallest uncertainty about the group of a cell.
LEAST_DOUBT = 1e-3


@dataclass(frozen=True)
class Groups:
    """Known groups of cells: means, scatter within groups, and a classifier of groups."""

    #: Rotation and scaling (k, k) that whitens the scatter within groups.
    whiten: Floats
    #: Whitened means (C, k).
    means: Floats
    predict: Logistic
    scale: float
    #: Number of cells (C,) of each group.
    counts: Floats
    #: Class (C,) of each group in the classifier.
    columns: NDArray[np.integer]

    @classmethod
    def of(cls, y: Floats, codes: NDArray[np.integer]) -> Groups:
        """Learn the groups from cells y (n, k) and their group codes (n,)."""
        used, codes = np.unique(codes, return_inverse=True)
        y = y.astype(np.float64)
        means = np.stack([y[codes == code].mean(0) for code in range(len(used))])
        whiten = within_groups(y, codes)
        scale = float(np.sqrt(y.var(0).mean())) or 1.0
        predict = fit_logistic(y / scale, codes, len(used), strength=LATENT_STRENGTH)
        counts = np.bincount(codes).astype(np.float64)
        return cls(whiten, means @ whiten, predict, scale, counts, np.arange(len(used)))

    def features(self, y: Floats) -> Floats:
        """Return the logarithms of the distance to the nearest group and of the uncertainty about the group (n, 2)."""
        points = y.astype(np.float64) @ self.whiten
        squares = (points**2).sum(1)[:, None] - 2 * points @ self.means.T + (self.means**2).sum(1)
        doubt = 1 - self.predict(y / self.scale).max(1) + LEAST_DOUBT
        return np.stack([np.log(np.maximum(squares.min(1), 1e-12)), np.log(doubt)], axis=1)


def within_groups(y: Floats, codes: NDArray[np.integer]) -> Floats:
    """Return a rotation and scaling (k, k) that whitens the scatter of cells y (n, k) within groups."""
    used, codes = np.unique(codes, return_inverse=True)
    y = y.astype(np.float64)
    means = np.stack([y[codes == code].mean(0) for code in range(len(used))])
    scatter = np.cov((y - means[codes]).T, bias=True).reshape(y.shape[1], y.shape[1])
    variances, axes = np.linalg.eigh(scatter)
    return np.asarray(axes / np.sqrt(np.maximum(variances, 0) + RIDGE * variances.mean() + 1e-12))


def cluster(y: Floats, seed: int = 0) -> NDArray[np.intp]:
    """Return k-means clusters (n,) of cells without labels."""
    from sklearn.cluster import KMeans

    n_clusters = int(np.clip(len(y) // CLUSTER_SIZE, 1, N_CLUSTERS))
    return KMeans(n_clusters, n_init=1, random_state=seed).fit(y).labels_.astype(np.intp)


def novelty_scores(groups: Groups, query: Floats, calibration: Floats) -> tuple[Floats, Floats]:
    """Return novelty scores of query cells (n,) and calibration cells (m,), in standard deviations of the latter."""
    features, known = groups.features(query), groups.features(calibration)
    centre, spread = known.mean(0), np.maximum(known.std(0), 1e-9)
    return ((features - centre) / spread).mean(1), ((known - centre) / spread).mean(1)
