"""The shift of a query: an offset in the latent space, for all cells or for each soft cluster.

If every gene of a query has an offset a, all cells move by one vector: x = V U + a + e has the latents y = U + delta +
noise with delta = V'a. The fit alternates between two steps: denoise y - delta, and set delta to the mean change by
denoising. The noise level falls, so that the means of query and reference are matched first, then the cell types.

The offset of a soft cluster is the difference of its means in query and reference. It is reduced by the difference that
another composition of the cluster could cause. It is also limited to a multiple of the median offset: a technology
changes all types, so a single type that is far away may be new. docs/shift.md explains the constants.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

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
#: Smallest mean number of cells per cluster (the error of a cluster mean is then a third of its spread), and maximum
#: number of cells for k-means.
MIN_CLUSTER, KMEANS_CELLS = 10, 20_000
#: Width of the soft assignment in squared distance of unit vectors, as in Harmony and Symphony.
WIDTH = 0.1


@dataclass(frozen=True)
class SoftClusters:
    """Soft clusters of the reference: directions (c, k), means (c, k) and variances (c, k), in PCA units.

    Cells of low depth or another technology lie nearer to the origin than cells of the same type in the reference, but
    in the same direction. Each cell therefore belongs to the clusters in shares that follow from angles only.
    """

    directions: NDArray[np.float32]
    means: NDArray[np.float32]
    variances: NDArray[np.float32]

    @classmethod
    def learn(cls, latents: Floats, seed: int) -> Self | None:
        """Cluster cells with these latents (n, k). Return None if there are too few cells for two clusters."""
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
        """Return the shares (n, c) by which cells with latents y (n, k) belong to each cluster."""
        return soft_assignment(unit(y), self.directions)


def unit(x: Floats) -> Floats:
    """Scale every row to length one; rows of zeros stay zero."""
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def soft_assignment(angles: Floats, directions: Floats) -> Floats:
    """Return shares (n, c) of unit vectors (n, k) in the directions (c, k). They sum to one for each vector."""
    return softmax(2 / WIDTH * (angles @ directions.T))


#: Noise levels of the alternating fit, in units of the latent scale. At lower levels cells move to the nearest type:
#: with a last level of 1.4, 1.0 and 0.5, the offset of three known types was off by 5.0, 5.2 and 6.5 %.
LEVELS = (4.0, 2.8, 2.0, 1.4, 1.0)
#: Number of rounds at each level. With one round, cells of a single new type look shifted (tests/tl/test_shift.py).
OFFSET_ROUNDS = 2
#: Numbers of pseudo-cells that shrink the offset of a batch towards the offset of the query, and the query's offset
#: towards zero. The second number is for soft clusters.
PSEUDO_CELLS, PSEUDO_CLUSTER_CELLS = 20.0, 5.0
#: Squared distance by which another composition may move the mean of a cluster, in units of its variance. With 1, 2, 3
#: and 5, macro-F1 over 14 pairs was .743, .739, .737 and .735, and the smallest gain on a pair was -.031, -.019, -.015
#: and -.010.
COMPOSITION = 2.0
#: Maximum length of a cluster's offset, as a multiple of the median over cells (docs/shift.md).
FARTHEST = 3.0
TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Offsets:
    """Offsets that separate query cells from the reference, in PCA units."""

    #: Offsets (b, c, k) for every batch and soft cluster. With c = 1, all cells of a batch share one offset.
    offsets: NDArray[np.float32]
    #: Batch of every cell (n,).
    batches: Codes
    clusters: SoftClusters | None = None

    def of(self, y: NDArray[np.float32], rows: slice) -> NDArray[np.float32]:
        """Return the offsets (n, k) of the cells at `rows` with latents y (n, k), averaged over their soft clusters."""
        batch = self.batches[rows]
        if self.clusters is None or self.offsets.shape[1] == 1:
            return self.offsets[batch, 0]
        shares = self.clusters.shares(y)
        found = np.empty_like(y)
        for code in np.unique(batch):
            found[batch == code] = shares[batch == code] @ self.offsets[code]
        return found


def fit_offset(prior: "LearnedPrior", y: Floats, batches: Codes, n_batches: int = 1) -> Floats:
    """Fit the offset of every batch (b, k) to latents y (n, k) by alternating with the denoiser; in PCA units."""
    offsets: Floats = np.zeros((n_batches, y.shape[1]))
    for level in LEVELS:
        for _ in range(OFFSET_ROUNDS):
            clean = prior.mean(y - offsets[batches], rho=level * prior.latent_scale)
            offsets = shrunken_means(y - clean, batches, n_batches)
    return offsets


def shrunken_means(values: Floats, batches: Codes, n_batches: int = 1) -> Floats:
    """Return the mean (b, k) of every batch. Means of few cells are shrunk more."""
    member = (np.arange(n_batches)[:, None] == batches).astype(np.float64)
    return _shrunken(member @ values, member.sum(1)[:, None], PSEUDO_CELLS)[1]


def _shrunken(sums: Floats, n: Floats, pseudo_cells: float) -> tuple[Floats, Floats]:
    """Return the mean of all cells, shrunk towards zero, and batch means (b, ...), shrunk towards the mean of all.

    `sums` and `n` are the sums and the numbers of cells of every batch.
    """
    whole = sums.sum(0) / (n.sum(0) + pseudo_cells)
    return whole, whole[None] if len(sums) == 1 else (sums + pseudo_cells * whole) / (n + pseudo_cells)


def fit_cluster_offsets(clusters: SoftClusters, y: Floats, batches: Codes, n_batches: int = 1) -> NDArray[np.float32]:
    """Fit an offset (b, c, k) of every soft cluster in every batch to latents y (n, k); in PCA units."""
    shares = clusters.shares(y)
    n = np.stack([shares[batches == b].sum(0) for b in range(n_batches)])[:, :, None]
    sums = np.stack([shares[batches == b].T @ y[batches == b] for b in range(n_batches)]) - n * clusters.means
    both = _shrunken(sums, n, PSEUDO_CLUSTER_CELLS)
    whole, found = (_beyond_composition(x, clusters.variances) for x in both)
    # Use the median over the whole query. In a batch with a single new type, the median cell would be of the new type.
    longest = FARTHEST * _weighted_median(np.linalg.norm(whole, axis=1), n.sum(0)[:, 0])
    lengths = np.linalg.norm(found, axis=2, keepdims=True)
    return (found * (longest / np.maximum(lengths, max(longest, TINY)))).astype(np.float32)


def _beyond_composition(offsets: Floats, variances: Floats) -> Floats:
    """Shrink offsets (..., c, k) by the part that a different composition of each cluster could explain."""
    squares = np.square(offsets)
    return offsets * squares / np.maximum(squares + COMPOSITION * variances, TINY)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order[min(middle, len(order) - 1)]])


#: Maximum number of cells to learn offsets from, and maximum number of these cells that the network denoises.
SAMPLED_CELLS, NETWORK_CELLS = 4000, 1000

#: Strategies that move an embedding. Their offsets are stored in the record of a call.
STORED = ("offset", "clusters", "mean")


def find_offsets(
    prior: "LearnedPrior", y: NDArray[np.float32], batches: Codes, strategy: str, n_batches: int = 1
) -> Offsets:
    """Find the offsets of a query by one of the strategies in `STORED`.

    `y` holds the latents (m, k) of sampled cells in PCA units, in random order, and `batches` (m,) their batches. A
    batch without sampled cells gets the offsets of the whole query.
    """
    clusters = prior.soft_clusters
    if strategy == "clusters":
        if clusters is None:
            raise InputError(
                "shift='clusters' needs a prior with soft clusters, but this reference was too small for them: pass "
                "shift='offset'."
            )
        return Offsets(fit_cluster_offsets(clusters, y, batches, n_batches), batches, clusters)
    few, codes = y[:NETWORK_CELLS], batches[:NETWORK_CELLS]
    # For "mean" the mean of the query is its offset, because the mean of the reference is zero.
    found = fit_offset(prior, few, codes, n_batches) if strategy == "offset" else shrunken_means(few, codes, n_batches)
    return Offsets(found[:, None].astype(np.float32), batches)


def recall(prior: "LearnedPrior", record: Mapping[str, Any], batches: Codes, names: list[str] | None) -> Offsets | None:
    """Return the offsets that an earlier call stored, for cells whose batches (n,) are codes of `names`."""
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
