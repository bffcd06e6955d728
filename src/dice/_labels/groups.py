"""Groups of cells: known groups, from which novel cells are far, and groups of a query, which vote for a label.

Novelty is scored on the projection and never on denoised latents: denoising with a large rho maps unseen types onto
known ones. A cell is novel if it is far from all known groups, by label or by cluster, and if its group is uncertain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dice._model.logistic import LATENT_STRENGTH, Logistic, fit_logistic
from dice._types import Codes, Floats, Mask

#: Maximum number of clusters of cells without labels, and minimum number of cells per cluster.
N_CLUSTERS, CLUSTER_SIZE = 15, 20
#: Share of the mean variance that is added to the variance of each direction.
RIDGE = 1e-3
#: Smallest uncertainty about the group of a cell.
LEAST_DOUBT = 1e-3
#: Number of nearest cells in a tissue whose labels are averaged.
TISSUE_NEIGHBORS = 10


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
    from sklearn.cluster import KMeans  # imported only by queries

    n_clusters = int(np.clip(len(y) // CLUSTER_SIZE, 1, N_CLUSTERS))
    return KMeans(n_clusters, n_init=1, random_state=seed).fit(y).labels_.astype(np.intp)


def novelty_scores(groups: Groups, query: Floats, calibration: Floats) -> tuple[Floats, Floats]:
    """Return novelty scores of query cells (n,) and calibration cells (m,), in standard deviations of the latter."""
    features, known = groups.features(query), groups.features(calibration)
    centre, spread = known.mean(0), np.maximum(known.std(0), 1e-9)
    return ((features - centre) / spread).mean(1), ((known - centre) / spread).mean(1)


#: Number of permutations for the agreement by chance.
PERMUTATIONS = 20


@dataclass(frozen=True)
class Votes:
    """Votes of the cells of G groups for C labels."""

    #: Number of cells (G,) of every group, and the mean (G, C) of their probabilities.
    n_cells: Codes
    probabilities: Floats
    #: Share (G, C) of the cells with each label as most likely label.
    shares: Floats
    #: Sets (G, C) of the labels that together have the probability 1 - alpha.
    sets: Mask


def vote(probabilities: Floats, groups: NDArray[np.integer], n_groups: int, alpha: float) -> Votes:
    """Return the votes of cells (n, C) per group (n,). Cells with the code -1 do not vote.

    Probabilities are averaged and not multiplied, because errors of cells in the same group are correlated.
    """
    n, n_labels = np.bincount(groups[groups >= 0], minlength=n_groups), probabilities.shape[1]
    voters = groups >= 0
    sums, best = np.zeros((n_groups, n_labels)), np.zeros((n_groups, n_labels))
    np.add.at(sums, groups[voters], probabilities[voters])
    np.add.at(best, (groups[voters], probabilities[voters].argmax(1)), 1)
    mean, shares = (values / np.maximum(n, 1)[:, None] for values in (sums, best))
    order = np.argsort(-mean, axis=1, kind="stable")
    ranked = np.take_along_axis(mean, order, axis=1)
    sets = np.zeros(mean.shape, dtype=bool)
    # A label is in the set if more likely labels have not reached the probability yet.
    np.put_along_axis(sets, order, np.cumsum(ranked, axis=1) - ranked < 1 - alpha, axis=1)
    return Votes(n.astype(np.intp), mean, shares, sets)


def votes_help(probabilities: Floats, groups: NDArray[np.integer], voted: NDArray[np.integer]) -> bool:
    """Return whether votes of groups (n,) can help: groups agree better than by chance, and votes change few labels.

    Votes that change more labels than are expected to be wrong, by the probabilities (n, C), add more errors than they
    correct. `voted` (G,) is the label of every group. Cells without a group (-1) are left out. Agreement is the share
    of cells with the most frequent label of their group; groups by chance have the same sizes.
    """
    known = groups >= 0
    if not known.any():
        return False
    labels = probabilities.argmax(1)
    agreement = float((labels[known] == voted[groups[known]]).mean())
    if 1 - agreement > 1 - probabilities[known].max(1).mean():
        return False
    rng = np.random.default_rng(0)
    chance = [_agreement(rng.permutation(labels[known]), groups[known]) for _ in range(PERMUTATIONS)]
    return bool(agreement > np.mean(chance) + 2 * np.std(chance))


def _agreement(labels: NDArray[np.integer], groups: NDArray[np.integer]) -> float:
    """Return the share of cells with the most frequent label of their group."""
    table = np.zeros((groups.max() + 1, labels.max() + 1))
    np.add.at(table, (groups, labels), 1)
    return float(table.max(1).sum() / len(labels))


#: Mean number of cells per group, maximum number of groups, and maximum number of cells to learn groups from.
GROUP_CELLS, MOST_GROUPS, LEARNED_CELLS = 25, 400, 10_000


def fine_groups(latents: Floats, order: Codes) -> Codes:
    """Return k-means groups (n,) of cells with latents (n, k); -1 for cells that are not in `order`.

    `order` holds the positions of the cells to group. Groups are learned from the first ones, so the order should be
    random and independent of the file.
    """
    codes = np.full(len(latents), -1, dtype=np.intp)
    n_groups = int(np.clip(len(order) // GROUP_CELLS, 1, MOST_GROUPS))
    if not len(order):
        return codes
    from sklearn.cluster import KMeans

    learned = latents[order[:LEARNED_CELLS]].astype(np.float32)
    model = KMeans(min(n_groups, len(np.unique(learned, axis=0))), n_init=1, random_state=0).fit(learned)
    codes[order] = model.predict(np.ascontiguousarray(latents[order], dtype=np.float32))
    return codes


def with_tissue(probabilities: Floats, positions: Floats) -> tuple[Floats, float]:
    """Return probabilities (n, C) averaged with those of the nearest cells in a tissue, and the weight of the latter.

    The weight is Cohen's kappa of the labels of cells and of their neighbours: 0 if neighbours agree by chance alone.
    """
    from sklearn.metrics import cohen_kappa_score
    from sklearn.neighbors import NearestNeighbors

    n_neighbors = min(TISSUE_NEIGHBORS, len(positions) - 1)
    if n_neighbors < 1:
        return probabilities, 0.0
    nearest = NearestNeighbors(n_neighbors=n_neighbors).fit(positions).kneighbors(return_distance=False)
    around = probabilities[nearest].mean(1)
    kappa = cohen_kappa_score(probabilities.argmax(1), around.argmax(1))
    weight = float(np.clip(np.nan_to_num(kappa), 0, 1))
    return (probabilities + weight * around) / (1 + weight), weight
