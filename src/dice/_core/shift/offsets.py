"""What separates a query from the reference: an offset in the latent space, of all its cells or of each kind of them.

An offset of every gene moves all cells of a query by one vector: x = V U + a + e reads out as y = U + delta + noise
with delta = V'a. It is found by alternating "denoise y - delta" and "delta = mean of what denoising took away", at a
noise level that falls: first the means of query and reference meet, then every cell looks for its own kind, so that a
query of three cell types is not stretched over nine. All in units of the prior's latent scale.

Offsets of kinds are the differences of means, kind by kind, between query and reference, where they are plain: larger
than what another composition of the kind could make, and no larger than those of most other cells, because a
technology concerns all kinds, and a single kind that is far away may be new.

Depth comes before both. The fewer molecules of a cell were counted, the nearer its logarithms are to zero: cells that
were sequenced less deeply lie on the way from their place to that of an empty cell, and are stretched back along it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._core.prior.denoiser import Denoiser
from dice._core.shift.soft_clusters import Kinds

Floats = NDArray[np.floating]

#: Noise levels of the alternation. Further down, cells cling to whatever type is near.
LEVELS = (4.0, 2.8, 2.0, 1.4, 1.0)
ROUNDS = 2
#: The level at which a query is judged: cells of any type of the reference are within reach, other places are not.
PULL_LEVEL = 2.0
#: The level at which cells are compared with the reference's own: about the noise of both.
FINE_LEVEL = 0.35
#: Cells that the network looks at.
NETWORK_CELLS = 1000
#: Cells of a batch count as much as so many cells that have the offset of the whole query.
SHRINKAGE = 20.0
#: A kind counts as if so many of its cells had no offset.
KIND_SHRINKAGE = 5.0
#: Another composition within a kind may move its mean by about the root of so many times its variance.
COMPOSITION = 2.0
#: Offsets of kinds are no longer than so many times that of the median cell.
FARTHEST = 3.0
#: Rounds of finding the kinds of stretched cells and stretching them, by no more than the inverse of this.
DEPTH_ROUNDS, SHALLOWEST = 5, 0.05
TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class Depth:
    """How deeply the batches of a query were sequenced, in PCA units."""

    #: Place (k,) of a cell without any expression.
    empty: NDArray[np.float32]
    #: Share (b,) of the way from there that the cells of every batch have come; 1 is the depth of the reference.
    shares: NDArray[np.float32]

    def stretched(self, y: NDArray[np.float32], batches: NDArray[np.intp]) -> NDArray[np.float32]:
        """Where cells y (n, k) would lie at the depth of the reference."""
        return stretched(y, self.empty, self.shares[batches][:, None])


@dataclass(frozen=True)
class Shift:
    """How far cells of a query stand from where the reference would have them, in PCA units."""

    #: Offsets (b, c, k) of every batch, one for each kind of cells; with c = 1, one for all cells.
    offsets: NDArray[np.float32]
    #: Batch of every cell (n,).
    batches: NDArray[np.intp]
    kinds: Kinds | None = None
    #: None where all batches are as deep as the reference.
    depth: Depth | None = None

    def stretch(self, rows: slice = slice(None)) -> NDArray[np.float32]:
        """How many times (n,) the cells at `rows`, and their noise, are stretched."""
        shares = np.ones(len(self.offsets), dtype=np.float32) if self.depth is None else self.depth.shares
        return np.reciprocal(shares)[self.batches[rows]]

    def of(self, y: NDArray[np.float32], rows: slice) -> NDArray[np.float32]:
        """How far (n, k) the cells at `rows`, whose projection is y (n, k), stand away."""
        batch = self.batches[rows]
        if self.depth is None:
            return self._offset(y, batch)
        deep = self.depth.stretched(y, batch)
        return y - deep + self._offset(deep, batch)

    def _offset(self, y: NDArray[np.float32], batch: NDArray[np.intp]) -> NDArray[np.float32]:
        """Offsets (n, k) of cells: of their kinds, by their shares."""
        if self.kinds is None or self.offsets.shape[1] == 1:
            return self.offsets[batch, 0]
        shares = self.kinds.shares(y)
        shift = np.empty_like(y)
        for code in np.unique(batch):
            shift[batch == code] = shares[batch == code] @ self.offsets[code]
        return shift


def pull(denoiser: Denoiser, z: Tensor, level: float = PULL_LEVEL) -> NDArray[np.float32]:
    """How far the prior pulls each cell (n,), ||D(z; s) - z||^2 / (k s^2)."""
    moved = denoiser(z, _level(z, level)) - z
    return (moved.square().mean(1) / level**2).cpu().numpy()


def expected_pull(variances: Floats, level: float = PULL_LEVEL) -> float:
    """The mean pull on cells of the reference, were they Gaussian with the latents' `variances` (k,)."""
    v, s2 = np.asarray(variances, dtype=np.float64), level**2
    return float(np.mean(v * s2 / (v + s2) ** 2))


def usual_pull(denoiser: Denoiser, z: Tensor) -> float:
    """Mean pull on cells (n, k) of the reference at the fine level."""
    return float(pull(denoiser, z[:NETWORK_CELLS], FINE_LEVEL).mean())


def relative_pull(denoiser: Denoiser, z: Tensor, usual: float) -> float:
    """How many times harder than the `usual` the prior pulls cells (n, k) at the fine level; a few prove little."""
    pulls = pull(denoiser, z[:NETWORK_CELLS], FINE_LEVEL)
    return (float(pulls.sum()) / usual + SHRINKAGE) / (len(pulls) + SHRINKAGE)


def places(denoiser: Denoiser, z: Tensor) -> NDArray[np.float32]:
    """What cells (n, k) are denoised to at the last level of the alternation, where every kind has its own place."""
    return denoiser(z, _level(z, LEVELS[-1])).cpu().numpy()


def variety(places: Floats) -> float:
    """Variance of places (n, k), mean over latents: hardly any if all cells are of one kind."""
    return float(places.var(0).mean())


def expected_variety(variances: Floats) -> float:
    """The variety of cells of the reference, were they Gaussian with the latents' `variances` (k,)."""
    v = np.asarray(variances, dtype=np.float64)
    return float(np.mean(v**3 / (v + LEVELS[-1] ** 2) ** 2))


def fit_offset(denoiser: Denoiser, z: Tensor, batches: NDArray[np.intp], n_batches: int = 1) -> Tensor:
    """Offsets (b, k) of the batches of cells z (n, k) under the prior, by the alternation."""
    offsets = torch.zeros((n_batches, z.shape[1]), dtype=z.dtype, device=z.device)
    batch = torch.as_tensor(batches, device=z.device)
    for level in LEVELS:
        for _ in range(ROUNDS):
            taken_away = z - denoiser(z - offsets[batch], _level(z, level))
            offsets = shrunken_means(taken_away, batch, len(offsets))
    return offsets


def shrunken_means(values: Tensor, batch: Tensor, n_batches: int) -> Tensor:
    """Mean (b, k) of every batch, pulled to the mean of all by its number of cells, and that towards zero."""
    n = torch.bincount(batch, minlength=n_batches)[:, None].to(values.dtype)
    sums = torch.zeros((n_batches, values.shape[1]), dtype=values.dtype, device=values.device)
    sums.index_add_(0, batch, values)
    whole = sums.sum(0) / (n.sum() + SHRINKAGE)
    if n_batches == 1:
        return whole[None]
    return (sums + SHRINKAGE * whole) / (n + SHRINKAGE)


def fit_depth(kinds: Kinds, y: Floats, empty: Floats) -> float:
    """Share of the way from the place (k,) of an empty cell that cells y (n, k) have come; PCA units, at most 1.

    There are two witnesses. The mean of all cells is moved by another composition as well, and the distance of cells
    from the mean of their kind by another technology: only what both of them say is a matter of depth.
    """
    by_mean = by_kinds = _share_of_way(y.mean(0) - empty, -empty)  # The mean of the reference is zero.
    for _ in range(DEPTH_ROUNDS):
        places = kinds.shares(stretched(y, empty, by_kinds)) @ (kinds.means - empty)
        by_kinds = _share_of_way(y - empty, places)
    # As if some cells of the reference's depth were among them: a few cells prove nothing.
    return (len(y) * min(max(by_mean, by_kinds), 1.0) + SHRINKAGE) / (len(y) + SHRINKAGE)


def stretched(y: Floats, empty: Floats, share: Floats | float) -> Floats:
    """Where cells y (n, k) would lie that have come a share () or (n, 1) of the way from an empty one."""
    return empty + (y - empty) / share


def _share_of_way(come: Floats, way: Floats) -> float:
    return max(float((come * way).sum() / max(float((way * way).sum()), float(TINY))), SHALLOWEST)


def fit_kind_offsets(kinds: Kinds, y: Floats, batches: NDArray[np.intp], n_batches: int = 1) -> NDArray[np.float32]:
    """Offsets (b, c, k) of the kinds in the batches of cells y (n, k), PCA units."""
    shares = kinds.shares(y)
    n = np.stack([shares[batches == b].sum(0) for b in range(n_batches)])[:, :, None]
    sums = np.stack([shares[batches == b].T @ y[batches == b] for b in range(n_batches)]) - n * kinds.means
    whole = sums.sum(0) / (n.sum(0) + KIND_SHRINKAGE)
    found = whole[None] if n_batches == 1 else (sums + KIND_SHRINKAGE * whole) / (n + KIND_SHRINKAGE)
    whole, found = (_beyond_composition(x, kinds.variances) for x in (whole, found))
    # The whole query sets the limit: in a batch of one new kind the median cell would be new as well.
    longest = FARTHEST * _weighted_median(np.linalg.norm(whole, axis=1), n.sum(0)[:, 0])
    lengths = np.linalg.norm(found, axis=2, keepdims=True)
    return (found * (longest / np.maximum(lengths, max(longest, float(TINY))))).astype(np.float32)


def _beyond_composition(offsets: Floats, variances: Floats) -> Floats:
    """Offsets (..., c, k) less what another composition of each kind could make of its mean."""
    squares = np.square(offsets)
    return offsets * squares / np.maximum(squares + COMPOSITION * variances, TINY)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order[min(middle, len(order) - 1)]])


def _level(z: Tensor, level: float) -> Tensor:
    return torch.tensor(level, dtype=z.dtype, device=z.device)
