"""The shift of a query: an offset in the latent space, of all cells or of each soft cluster.

An offset of every gene moves all cells of a query by one vector: x = V U + a + e projects to y = U + delta + noise with
delta = V'a. The fit alternates between denoising y - delta and setting delta to the mean change by denoising, at
falling noise levels. The means of query and reference are matched first, and the cells of each type later.

The offsets of soft clusters are differences of cluster means between query and reference. They are reduced by the
difference that another composition of the cluster could cause, and limited to a multiple of the median offset: a
technology changes all types, and a single type that is far away may be new. Constants are explained in docs/shift.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from dice._errors import InputError
from dice._model.arrays import softmax
from dice._types import Codes, Floats

if TYPE_CHECKING:
    from dice._model.prior import LearnedPrior

#: Largest number of clusters: 30, 50, 100 and 200 differ by less than .01 of macro-F1 over 14 pairs (docs/shift.md).
MAX_CLUSTERS = 100
#: Smallest number of cells per cluster, whose mean then has an error of a third of its spread; most cells for k-means.
MIN_CLUSTER, KMEANS_CELLS = 10, 20_000
#: Width of the soft assignment in squared distance of unit vectors, as in Harmony and Symphony.
WIDTH = 0.1


@dataclass(frozen=True)
class SoftClusters:
    """Directions (c, k) of clusters of the reference, with their means (c, k) and variances (c, k) in PCA units.

    Cells of low depth or another technology lie nearer to the origin than cells of the same type in the reference, but
    in the same direction. Cells belong to clusters in shares, by the angle between them.
    """

    directions: NDArray[np.float32]
    means: NDArray[np.float32]
    variances: NDArray[np.float32]

    @classmethod
    def learn(cls, latents: Floats, seed: int) -> Self | None:
        """Clusters of cells with these latents (n, k); None if there are too few cells for two clusters."""
        if len(latents) > KMEANS_CELLS:
            latents = latents[np.random.default_rng(seed).choice(len(latents), KMEANS_CELLS, replace=False)]
        angles = unit(np.asarray(latents, dtype=np.float64))
        # With one latent there are only two directions.
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
        """Shares (n, c) of cells with latents y (n, k) in each cluster."""
        return soft_assignment(unit(y), self.directions)


def unit(x: Floats) -> Floats:
    """Rows scaled to length one, except the origin."""
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def soft_assignment(angles: Floats, directions: Floats) -> Floats:
    """Shares (n, c) of unit vectors (n, k) in directions (c, k), summing to one."""
    return softmax(2 / WIDTH * (angles @ directions.T))


#: Noise levels of the alternation in latent scales. At lower levels cells move to the nearest type: with last levels
#: 1.4, 1.0 and 0.5, the offset of three known types was off by 5.0, 5.2 and 6.5 %.
LEVELS = (4.0, 2.8, 2.0, 1.4, 1.0)
#: Rounds at each level. With one round, cells of a single new type look shifted (tests/tl/test_shift.py).
OFFSET_ROUNDS = 2
#: Pseudo-counts of a batch, in cells with the offset of the query, and of a soft cluster, in cells without an offset.
PSEUDO_CELLS, PSEUDO_CLUSTER_CELLS = 20.0, 5.0
#: Variances of a cluster by which another composition may move its mean. Macro-F1 over 14 pairs with 1, 2, 3, 5: .743,
#: .739, .737, .735, and the smallest gain on any pair -.031, -.019, -.015, -.010.
COMPOSITION = 2.0
#: Longest offset of a cluster, as a multiple of the median cell's (docs/shift.md).
FARTHEST = 3.0
TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Offsets:
    """Offsets of the cells of a query from their places in the reference, in PCA units."""

    #: Offsets (b, c, k) of every batch, one for each soft cluster; with c = 1, one for all cells.
    offsets: NDArray[np.float32]
    #: Batch of every cell (n,).
    batches: Codes
    clusters: SoftClusters | None = None

    def of(self, y: NDArray[np.float32], rows: slice) -> NDArray[np.float32]:
        """Return the offset (n, k) of the cells at `rows` with latents y (n, k), averaged over their soft clusters."""
        batch = self.batches[rows]
        if self.clusters is None or self.offsets.shape[1] == 1:
            return self.offsets[batch, 0]
        shares = self.clusters.shares(y)
        found = np.empty_like(y)
        for code in np.unique(batch):
            found[batch == code] = shares[batch == code] @ self.offsets[code]
        return found


def fit_offset(prior: LearnedPrior, y: Floats, batches: Codes, n_batches: int = 1) -> Floats:
    """Fit offsets (b, k) of the batches of cells y (n, k) by alternation with the denoiser; PCA units."""
    offsets: Floats = np.zeros((n_batches, y.shape[1]))
    for level in LEVELS:
        for _ in range(OFFSET_ROUNDS):
            clean = prior.mean(y - offsets[batches], rho=level * prior.latent_scale)
            offsets = shrunken_means(y - clean, batches, n_batches)
    return offsets


def shrunken_means(values: Floats, batches: Codes, n_batches: int = 1) -> Floats:
    """Mean (b, k) of every batch, shrunk by its number of cells."""
    member = (np.arange(n_batches)[:, None] == batches).astype(np.float64)
    return _shrunken(member @ values, member.sum(1)[:, None], PSEUDO_CELLS)[1]


def _shrunken(sums: Floats, n: Floats, pseudo_cells: float) -> tuple[Floats, Floats]:
    """Mean of all cells, shrunk to zero, and means of batches (b, ...), shrunk to the mean of all; `n` counts cells."""
    whole = sums.sum(0) / (n.sum(0) + pseudo_cells)
    return whole, whole[None] if len(sums) == 1 else (sums + pseudo_cells * whole) / (n + pseudo_cells)


def fit_cluster_offsets(clusters: SoftClusters, y: Floats, batches: Codes, n_batches: int = 1) -> NDArray[np.float32]:
    """Offsets (b, c, k) of the soft clusters in the batches of cells y (n, k), PCA units."""
    shares = clusters.shares(y)
    n = np.stack([shares[batches == b].sum(0) for b in range(n_batches)])[:, :, None]
    sums = np.stack([shares[batches == b].T @ y[batches == b] for b in range(n_batches)]) - n * clusters.means
    both = _shrunken(sums, n, PSEUDO_CLUSTER_CELLS)
    whole, found = (_beyond_composition(x, clusters.variances) for x in both)
    # The whole query sets the limit: in a batch of one new type the median cell would be new as well.
    longest = FARTHEST * _weighted_median(np.linalg.norm(whole, axis=1), n.sum(0)[:, 0])
    lengths = np.linalg.norm(found, axis=2, keepdims=True)
    return (found * (longest / np.maximum(lengths, max(longest, TINY)))).astype(np.float32)


def _beyond_composition(offsets: Floats, variances: Floats) -> Floats:
    """Return offsets (..., c, k), shrunk by the part that a different composition of each cluster could explain."""
    squares = np.square(offsets)
    return offsets * squares / np.maximum(squares + COMPOSITION * variances, TINY)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order[min(middle, len(order) - 1)]])


#: Cells that offsets are learned from, and that the network looks at.
SAMPLED_CELLS, NETWORK_CELLS = 4000, 1000

Strategy = Literal["offset", "clusters", "mean"]


def find_offsets(
    prior: LearnedPrior, y: NDArray[np.float32], batches: Codes, strategy: Strategy, n_batches: int = 1
) -> Offsets:
    """The offsets of a query by a strategy of :class:`dice.Shift`.

    `y` are latents (m, k) of sampled cells in PCA units, in random order, and `batches` (m,) their batches. A batch
    without sampled cells has the offsets of the whole query.
    """
    clusters = prior.soft_clusters
    if strategy == "clusters":
        if clusters is None:
            raise InputError(
                "shift='clusters' needs a prior with soft clusters, and this reference was too small for them: pass "
                "shift='offset'."
            )
        return Offsets(fit_cluster_offsets(clusters, y, batches, n_batches), batches, clusters)
    few, codes = y[:NETWORK_CELLS], batches[:NETWORK_CELLS]
    # The mean of the reference is zero.
    found = fit_offset(prior, few, codes, n_batches) if strategy == "offset" else shrunken_means(few, codes, n_batches)
    return Offsets(found[:, None].astype(np.float32), batches)


#: Strategies with offsets, which a record of a call holds.
STORED = ("offset", "clusters", "mean")


def recall(prior: LearnedPrior, record: Mapping[str, Any], batches: Codes, names: list[str] | None) -> Offsets | None:
    """Return the offsets that an earlier call stored, for cells in `batches` (n,) with these `names`."""
    if record.get("strategy") == "none":
        return None
    offsets = np.asarray(record.get("offset"))
    stored = None if "batches" not in record else [str(name) for name in record["batches"]]
    n_clusters = 1 if prior.soft_clusters is None else len(prior.soft_clusters.means)
    fits = record.get("strategy") in STORED and offsets.dtype.kind in "fiu" and offsets.ndim == 3
    fits = fits and offsets.shape[1] in (1, n_clusters) and offsets.shape[2] == prior.n_latent
    if not fits or len(offsets) != len(stored or [0]) or not np.isfinite(offsets).all():
        raise InputError(
            "`shift` has offsets that do not fit the prior: pass the shift that dice.tl.denoise stored with it in "
            "query.uns['X_dice']['shift'], or shift='offset'."
        )
    if (stored is None) != (names is None) or not set(names or ()) <= set(stored or ()):
        raise InputError(
            f"The stored shift has the batches {stored}, but the query has {names}: pass the batch_key of the call "
            "that stored it."
        )
    if stored is not None and names is not None:
        batches = np.array([stored.index(name) for name in names], dtype=np.intp)[batches]
    return Offsets(offsets.astype(np.float32), batches, prior.soft_clusters)
