"""Soft clusters of the reference: where each lies in the latent space, to compare a query with cluster by cluster.

They are clusters of directions: cells of low depth or another technology lie nearer to the origin than cells of the
same type in the reference, but in the same direction. A cell belongs to clusters in shares, by how small the angle
between them is (the soft assignment of Harmony and Symphony).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from dice._types import Floats

#: Most clusters: 30, 50, 100 and 200 differ by less than .01 of macro-F1 over 14 pairs (docs/shift.md).
MAX_CLUSTERS = 100
#: Fewest cells for a cluster (its mean is then known to a third of its spread), and most cells for k-means.
MIN_CLUSTER, KMEANS_CELLS = 10, 20_000
#: Width of the soft assignment in squared distance of unit vectors, as Harmony and Symphony have it.
WIDTH = 0.1


@dataclass(frozen=True)
class SoftClusters:
    """Directions (c, k) of clusters, with their means (c, k) and variances (c, k) in PCA units."""

    directions: NDArray[np.float32]
    means: NDArray[np.float32]
    variances: NDArray[np.float32]

    @classmethod
    def learn(cls, latents: Floats, seed: int) -> Self | None:
        """Clusters of the cells with these latents (n, k); None where there are too few to tell two apart."""
        if len(latents) > KMEANS_CELLS:
            latents = latents[np.random.default_rng(seed).choice(len(latents), KMEANS_CELLS, replace=False)]
        angles = unit(np.asarray(latents, dtype=np.float64))
        # With one latent there are but two directions, however many cells.
        n_clusters = min(MAX_CLUSTERS, len(latents) // MIN_CLUSTER, len(np.unique(angles, axis=0)))
        if n_clusters < 2:
            return None
        directions = unit(KMeans(n_clusters, n_init=1, random_state=seed).fit(angles).cluster_centers_)
        shares = soft_assignment(angles, directions)
        weights = shares / np.maximum(shares.sum(0), np.finfo(np.float64).tiny)
        means = weights.T @ latents
        variances = np.maximum(weights.T @ np.square(latents) - np.square(means), 0)
        return cls(*(x.astype(np.float32) for x in (directions, means, variances)))

    def shares(self, y: Floats) -> Floats:
        """How much (n, c) of each cell with latents y (n, k) belongs to each cluster."""
        return soft_assignment(unit(y), self.directions)


def unit(x: Floats) -> Floats:
    """Rows at length one; the origin has no direction and stays."""
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def soft_assignment(angles: Floats, directions: Floats) -> Floats:
    """Shares (n, c) of unit vectors (n, k) in directions (c, k), summing to one."""
    closeness = 2 / WIDTH * (angles @ directions.T)
    shares = np.exp(closeness - closeness.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)
