"""How unlike the reference a cell is: by its projection, never by its denoised latents.

A large rho maps unseen types onto known ones, so that nothing here looks at what the prior made of a cell. Known cells
form groups, by label or by cluster. A cell is novel if it is far from all of them, and if it is hard to say which one
it is of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dice._model.logistic import LATENT_STRENGTH, Logistic, fit_logistic
from dice._types import Floats

#: Groups that cells without labels are clustered into, and cells that each should have.
N_CLUSTERS, CLUSTER_SIZE = 15, 20
#: Share of the mean variance that is added to each direction.
RIDGE = 1e-3
#: Doubt that even the surest cell leaves.
LEAST_DOUBT = 1e-3


@dataclass(frozen=True)
class Groups:
    """Known groups of cells: their means, what makes cells of a group differ, and how to tell groups apart."""

    #: Rotation and scaling (k, k) after which the scatter within groups is the same in all directions.
    whiten: Floats
    #: Whitened means (C, k).
    means: Floats
    predict: Logistic
    scale: float
    #: Cells (C,) that each was learned from.
    counts: Floats
    #: Classes (C,) of the classifier that they are.
    columns: NDArray[np.integer]

    @classmethod
    def of(cls, y: Floats, codes: NDArray[np.integer]) -> Groups:
        """Learn from cells y (n, k) and their groups (n,)."""
        used, codes = np.unique(codes, return_inverse=True)
        y = y.astype(np.float64)
        means = np.stack([y[codes == code].mean(0) for code in range(len(used))])
        whiten = within_groups(y, codes)
        scale = float(np.sqrt(y.var(0).mean())) or 1.0
        predict = fit_logistic(y / scale, codes, len(used), strength=LATENT_STRENGTH)
        counts = np.bincount(codes).astype(np.float64)
        return cls(whiten, means @ whiten, predict, scale, counts, np.arange(len(used)))

    def features(self, y: Floats) -> Floats:
        """Distance to the nearest group and doubt about the group, both as logarithms (n, 2)."""
        points = y.astype(np.float64) @ self.whiten
        squares = (points**2).sum(1)[:, None] - 2 * points @ self.means.T + (self.means**2).sum(1)
        doubt = 1 - self.predict(y / self.scale).max(1) + LEAST_DOUBT
        return np.stack([np.log(np.maximum(squares.min(1), 1e-12)), np.log(doubt)], axis=1)


def within_groups(y: Floats, codes: NDArray[np.integer]) -> Floats:
    """Rotation and scaling (k, k) after which cells y (n, k) scatter alike in all directions around their groups."""
    used, codes = np.unique(codes, return_inverse=True)
    y = y.astype(np.float64)
    means = np.stack([y[codes == code].mean(0) for code in range(len(used))])
    scatter = np.cov((y - means[codes]).T, bias=True).reshape(y.shape[1], y.shape[1])
    variances, axes = np.linalg.eigh(scatter)
    return np.asarray(axes / np.sqrt(np.maximum(variances, 0) + RIDGE * variances.mean() + 1e-12))


def cluster(y: Floats, seed: int = 0) -> NDArray[np.intp]:
    """Groups (n,) of cells without labels, by k-means."""
    from sklearn.cluster import KMeans

    n_clusters = int(np.clip(len(y) // CLUSTER_SIZE, 1, N_CLUSTERS))
    return KMeans(n_clusters, n_init=1, random_state=seed).fit(y).labels_.astype(np.intp)


def novelty_scores(groups: Groups, query: Floats, calibration: Floats) -> tuple[Floats, Floats]:
    """Novelty of query (n,) and calibration cells (m,), in standard deviations of the latter."""
    features, known = groups.features(query), groups.features(calibration)
    centre, spread = known.mean(0), np.maximum(known.std(0), 1e-9)
    return ((features - centre) / spread).mean(1), ((known - centre) / spread).mean(1)
