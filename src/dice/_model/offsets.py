"""What separates a query from the reference, removed: an offset in the latent space, of all cells or of each cluster.

An offset of every gene moves all cells of a query by one vector: x = V U + a + e reads out as y = U + delta + noise
with delta = V'a. It is found by alternating "denoise y - delta" and "delta = mean of what denoising took away", at a
noise that falls: first the means of query and reference meet, then every cell looks for its own type, so that a query
of three cell types is not stretched over nine.

Offsets of soft clusters are the differences of means, cluster by cluster, between query and reference, where they are
plain: larger than what another composition of the cluster could make, and no larger than those of most other cells,
because a technology concerns all types, and a single type that is far away may be new.

The evidence for every constant is in docs/shift.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._model.denoiser import Denoiser
from dice._model.soft_clusters import SoftClusters
from dice._types import Codes, Floats

#: Noise of the alternation in latent scales. Further down cells cling to whatever type is near: ending at 1.4, 1.0 and
#: 0.5, the offset of three known types was off by 5.0, 5.2 and 6.5 % (tests/core/shift).
LEVELS = (4.0, 2.8, 2.0, 1.4, 1.0)
#: Rounds at each: with one, cells of a single new type are taken for shifted ones (tests/tl/test_shift.py).
ROUNDS = 2
#: Pseudo-count of a batch: so many cells with the offset of the whole query. A batch of four cells then moves by a
#: sixth of its own offset.
PSEUDO_CELLS = 20.0
#: Pseudo-count of a soft cluster: so many of its cells without an offset; clusters have ten cells and more.
PSEUDO_CLUSTER_CELLS = 5.0
#: Variances of a cluster by which another composition may move its mean. Macro-F1 over 14 pairs with 1, 2, 3, 5: .743,
#: .739, .737, .735, and the smallest gain on any pair -.031, -.019, -.015, -.010.
COMPOSITION = 2.0
#: Offsets of clusters are no longer than so many times that of the median cell: a technology concerns all types, so
#: that a single one that is far away may be new (docs/shift.md).
FARTHEST = 3.0
TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Offsets:
    """How far cells of a query are from where the reference would have them, in PCA units."""

    #: Offsets (b, c, k) of every batch, one for each soft cluster; with c = 1, one for all cells.
    offsets: NDArray[np.float32]
    #: Batch of every cell (n,).
    batches: Codes
    clusters: SoftClusters | None = None

    def of(self, y: NDArray[np.float32], rows: slice) -> NDArray[np.float32]:
        """How far (n, k) the cells at `rows`, whose latents are y (n, k), are away: by their soft clusters."""
        batch = self.batches[rows]
        if self.clusters is None or self.offsets.shape[1] == 1:
            return self.offsets[batch, 0]
        shares = self.clusters.shares(y)
        found = np.empty_like(y)
        for code in np.unique(batch):
            found[batch == code] = shares[batch == code] @ self.offsets[code]
        return found


def fit_offset(denoiser: Denoiser, z: Tensor, batches: Codes, n_batches: int = 1) -> Tensor:
    """Offsets (b, k) of the batches of cells z (n, k) under the prior, by the alternation; scaled units."""
    offsets = torch.zeros((n_batches, z.shape[1]), dtype=z.dtype, device=z.device)
    batch = torch.as_tensor(batches, device=z.device)
    for level in LEVELS:
        for _ in range(ROUNDS):
            taken_away = z - denoiser(z - offsets[batch], torch.tensor(level, dtype=z.dtype, device=z.device))
            offsets = shrunken_means(taken_away, batch, len(offsets))
    return offsets


def shrunken_means(values: Tensor, batch: Tensor, n_batches: int) -> Tensor:
    """Mean (b, k) of every batch, shrunk to the mean of all by its number of cells, and that towards zero."""
    n = torch.bincount(batch, minlength=n_batches)[:, None].to(values.dtype)
    sums = torch.zeros((n_batches, values.shape[1]), dtype=values.dtype, device=values.device)
    sums.index_add_(0, batch, values)
    whole = sums.sum(0) / (n.sum() + PSEUDO_CELLS)
    return whole[None] if n_batches == 1 else (sums + PSEUDO_CELLS * whole) / (n + PSEUDO_CELLS)


def fit_cluster_offsets(clusters: SoftClusters, y: Floats, batches: Codes, n_batches: int = 1) -> NDArray[np.float32]:
    """Offsets (b, c, k) of the soft clusters in the batches of cells y (n, k), PCA units."""
    shares = clusters.shares(y)
    n = np.stack([shares[batches == b].sum(0) for b in range(n_batches)])[:, :, None]
    sums = np.stack([shares[batches == b].T @ y[batches == b] for b in range(n_batches)]) - n * clusters.means
    whole = sums.sum(0) / (n.sum(0) + PSEUDO_CLUSTER_CELLS)
    found = whole[None] if n_batches == 1 else (sums + PSEUDO_CLUSTER_CELLS * whole) / (n + PSEUDO_CLUSTER_CELLS)
    whole, found = (_beyond_composition(x, clusters.variances) for x in (whole, found))
    # The whole query sets the limit: in a batch of one new type the median cell would be new as well.
    longest = FARTHEST * _weighted_median(np.linalg.norm(whole, axis=1), n.sum(0)[:, 0])
    lengths = np.linalg.norm(found, axis=2, keepdims=True)
    return (found * (longest / np.maximum(lengths, max(longest, TINY)))).astype(np.float32)


def _beyond_composition(offsets: Floats, variances: Floats) -> Floats:
    """Offsets (..., c, k) less what another composition of each cluster could make of its mean."""
    squares = np.square(offsets)
    return offsets * squares / np.maximum(squares + COMPOSITION * variances, TINY)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order[min(middle, len(order) - 1)]])
