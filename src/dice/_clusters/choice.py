"""The finest clusters that two measurements of the same cells agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score

from dice._types import Codes, Floats

#: Resolutions to try: from so coarse that only what hangs together by nothing is apart, in steps of two up to 0.05 and
#: of a quarter from there. All are tried up to `ALWAYS`, as agreement may fall and rise again, finer ones only as long
#: as measurements agree.
COARSE, FIRST, STEP, ALWAYS, FINEST = 0.0016, 0.05, 1.25, 2.0, 20.0
#: Resolutions in a row without that agreement after which finer ones are not tried.
PATIENCE = 3
#: Adjusted Rand index that halves of the counts must have as well. Second measurements of a cell share its first one;
#: halves share nothing, and have half of the counts. On 20 splits, four pairs and four shallow queries they had .67 to
#: .92 at the resolution that second measurements choose; on three samples of one type that second measurements cut in
#: two (memory cells, which shade from central to effector memory) .28 to .54.
INDEPENDENT = 0.6
#: Kappa, from 0 for chance to 1, by which two halves must tell two clusters apart.
TOLD = 0.5
#: Share of the squared distance between two clusters that must be left once depth is taken away. Counts of one profile
#: at the depths of bmmc's cells left .004 of the denoised and .02 of the projected one; clusters of bmmc and pancreas
#: .3 and more of one, and .65 and more of the other.
LEFT = 0.1


@dataclass(frozen=True)
class AgreementCurve:
    """Agreement of two measurements of the same cells at every resolution (r,) that was tried, in ascending order."""

    resolution: Floats
    #: Clusters of a measurement, mean over all.
    n_clusters: Floats
    #: Adjusted Rand index of two measurements, mean and standard deviation over pairs.
    agreement: Floats
    spread: Floats

    def agreed(self, least: float) -> list[int]:
        """Positions of resolutions with an agreement of `least` on two clusters or more, from the finest on."""
        found = np.flatnonzero((self.agreement >= least) & (self.n_clusters >= 1.5))
        return [int(position) for position in found[::-1]]


def explore(
    clusters: Callable[[float], NDArray[np.intp]], least: float, tell: Callable[[float], None]
) -> AgreementCurve:
    """The curve of ``clusters(resolution)``, which gives those of pairs of measurements (pairs, 2, n).

    `least` is the agreement that is asked for, and `tell` hears of every resolution.
    """
    rows, failed, resolution = [], 0, COARSE
    while resolution <= ALWAYS or (failed < PATIENCE and resolution <= FINEST):
        tell(resolution)
        pairs = clusters(resolution)
        agreements = agreements_of(pairs)
        sizes = [len(np.unique(one)) for pair in pairs for one in pair]
        rows.append((resolution, np.mean(sizes), np.mean(agreements), np.std(agreements)))
        curve = AgreementCurve(*np.array(rows).T)
        failed = 0 if len(rows) - 1 in curve.agreed(least) else failed + 1
        resolution = min(2 * resolution, FIRST) if resolution < FIRST else resolution * STEP
    return curve


def agreements_of(pairs: NDArray[np.intp]) -> Floats:
    """Adjusted Rand index of the clusters of every pair of measurements (pairs, 2, n)."""
    return np.array([adjusted_rand_score(*pair) for pair in pairs])


def by_size(clusters: Codes) -> Codes:
    """The same clusters, numbered from the largest to the smallest."""
    _, codes, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), dtype=np.intp)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return rank[codes]


def confidence(clusters: Codes, halves: Sequence[Codes]) -> Floats:
    """How often each cell (n,) is kept with its cluster by clusterings of halves.

    A cluster of a half stands for that one among `clusters` which most of its cells are in.
    """
    kept = np.zeros(len(clusters))
    for half in halves:
        kept += _crossed(half, clusters).argmax(1)[half] == clusters
    return kept / len(halves)


def merge_untold(clusters: Codes, halves: NDArray[np.intp]) -> Codes:
    """Clusters (n,), those together that two halves (splits, 2, n) do not tell apart.

    The agreement over all cells hides a cut through one cluster among many: each pair must be told apart by itself.
    """
    clusters = clusters.copy()
    while clusters.max():
        kappa = _told_apart(clusters, halves)
        first, second = np.unravel_index(kappa.argmin(), kappa.shape)
        if kappa[first, second] >= TOLD:
            break
        clusters[clusters == second] = first
        clusters = np.unique(clusters, return_inverse=True)[1]
    return clusters


def _told_apart(clusters: Codes, halves: NDArray[np.intp]) -> Floats:
    """Cohen's kappa (c, c) of two halves on which of two clusters a cell of either is in; 1 for the same cluster."""
    n, sizes = clusters.max() + 1, np.bincount(clusters)
    kappa = np.eye(n)
    for pair in halves:
        # Share of every cluster that is in each cluster of a half.
        shares = [_crossed(half, clusters) / sizes for half in pair]
        near = (sum(share.T @ share for share in shares) > 0) & ~np.eye(n, dtype=bool)
        kappa += np.where(near | np.eye(n, dtype=bool), 0, 1 / len(halves))
        for first, second in np.argwhere(np.triu(near)):
            cells = (clusters == first) | (clusters == second)
            one, other = ((share[:, first] > share[:, second])[half[cells]]
                          for share, half in zip(shares, pair, strict=True))  # fmt: skip
            chance = one.mean() * other.mean() + (1 - one.mean()) * (1 - other.mean())
            found = ((one == other).mean() - chance) / (1 - chance) if chance < 1 else 0.0
            kappa[first, second] += found / len(halves)
            kappa[second, first] = kappa[first, second]
    return kappa


def _crossed(half: Codes, clusters: Codes) -> Floats:
    """Cells (h, c) that are in a cluster of a half and in one of `clusters`."""
    table = np.zeros((half.max() + 1, clusters.max() + 1))
    np.add.at(table, (half, clusters), 1)
    return table


def merge_by_depth(clusters: Codes, spaces: Sequence[tuple[Floats, Floats]]) -> Codes:
    """Clusters (n,) of cells, those together that depth alone sets apart.

    Every space holds the cells (n, k), and cells (n, k) of the same depths that do not differ otherwise. Nothing else
    tells two clusters apart if hardly any of the squared distance between their means is left in any space when these
    are taken away. What depth sets apart from the same cluster is one as well: of shallow, middle and deep cells of one
    profile, the shallow and the deep together would lie where the middle ones are, for no reason of depth.
    """
    if not clusters.max():
        return clusters
    left = np.max([_left(clusters, *space) for space in spaces], axis=0)
    return connected_components(squareform(left < LEFT), directed=False)[1][clusters]


def _left(clusters: Codes, cells: Floats, alike: Floats) -> Floats:
    """Share of the squared distance of every pair of clusters (condensed) that is not that of cells that are alike."""
    of = [clusters == code for code in range(clusters.max() + 1)]
    means, by_depth = (np.array([values[own].mean(0) for own in of]) for values in (cells, alike))
    return pdist(means - by_depth, "sqeuclidean") / np.maximum(pdist(means, "sqeuclidean"), 1e-12)
