"""Queries that were sequenced less deeply than the reference, stretched to its depth.

The fewer molecules of a cell were counted, the nearer its logarithms are to zero: shallow cells lie on the way from
their place to that of an empty cell, and are stretched back along it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dice._core.shift.soft_clusters import SoftClusters
from dice._types import Codes, Floats

#: Rounds of finding the clusters of stretched cells and stretching them, by no more than the inverse of this.
ROUNDS, SHALLOWEST = 5, 0.05
#: Pseudo-count: so many cells of the reference's depth are counted among a query's, so that a few prove nothing.
PSEUDO_CELLS = 20.0


@dataclass(frozen=True)
class Depth:
    """How deeply the batches of a query were sequenced, in PCA units."""

    #: Latents (k,) of a cell without any expression.
    empty: NDArray[np.float32]
    #: Share (b,) of the way from there that the cells of every batch have come; 1 is the depth of the reference.
    shares: NDArray[np.float32]

    def stretched(self, y: NDArray[np.float32], batches: Codes) -> NDArray[np.float32]:
        """Where cells y (n, k) would lie at the depth of the reference."""
        return stretched(y, self.empty, self.shares[batches][:, None])


def fit_depth(clusters: SoftClusters, y: Floats, empty: Floats) -> float:
    """Share of the way from an empty cell (k,) that cells y (n, k) have come; PCA units, at most 1.

    The mean of all cells is moved by another composition as well, and the distance of cells from the mean of their
    cluster by another technology: only what both of them say is a matter of depth.
    """
    by_mean = by_clusters = _share_of_way(y.mean(0) - empty, -empty)  # The mean of the reference is zero.
    for _ in range(ROUNDS):
        latents = clusters.shares(stretched(y, empty, by_clusters)) @ (clusters.means - empty)
        by_clusters = _share_of_way(y - empty, latents)
    return (len(y) * min(max(by_mean, by_clusters), 1.0) + PSEUDO_CELLS) / (len(y) + PSEUDO_CELLS)


def stretched(y: Floats, empty: Floats, share: Floats | float) -> Floats:
    """Where cells y (n, k) would lie that have come a share () or (n, 1) of the way from an empty one."""
    return empty + (y - empty) / share


def _share_of_way(come: Floats, way: Floats) -> float:
    length = max(float((way * way).sum()), float(np.finfo(np.float32).tiny))
    return max(float((come * way).sum() / length), SHALLOWEST)
