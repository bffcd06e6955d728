"""The finest clusters that two measurements of the same cells agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from dice._core.clusters.agreement import mutual_information
from dice._types import Codes, Floats

#: Resolutions to try: from far coarser than anybody uses, in steps of a quarter. Up to the last one of the first group
#: all are tried, as agreement may fall and rise again; finer ones only as long as measurements agree.
FIRST, STEP, ALWAYS, FINEST = 0.05, 1.25, 2.0, 20.0
#: Resolutions in a row without agreement after which finer ones are not tried.
PATIENCE = 3
#: Share of the squared distance between two clusters that must be left once depth is taken away. Counts of one profile
#: at the depths of bmmc's cells left .003 to .004 over four seeds.
LEFT = 0.5


@dataclass(frozen=True)
class AgreementCurve:
    """Agreement of two measurements at every resolution (r,) that was tried, in ascending order."""

    resolution: Floats
    #: Clusters of a half, mean over all.
    n_clusters: Floats
    #: Adjusted mutual information of two halves, mean and standard deviation over splits.
    agreement: Floats
    spread: Floats

    def finest(self, least: float) -> int | None:
        """Position of the finest resolution with an agreement of `least` on two clusters or more; None without one."""
        good = np.flatnonzero((self.agreement >= least) & (self.n_clusters >= 1.5))
        return int(good[-1]) if len(good) else None


def explore(
    clusters: Callable[[float], NDArray[np.intp]], least: float, tell: Callable[[float], None]
) -> tuple[AgreementCurve, list[NDArray[np.intp]]]:
    """The curve of ``clusters(resolution)``, which gives those of both halves of every split (splits, 2, n).

    `least` is the agreement that is asked for, and `tell` hears of every resolution. Also returns the clusters.
    """
    found, rows, failed, resolution = [], [], 0, FIRST
    while resolution <= ALWAYS or (failed < PATIENCE and resolution <= FINEST):
        tell(resolution)
        pairs = clusters(resolution)
        agreements = [mutual_information(*pair) for pair in pairs]
        sizes = [len(np.unique(half)) for pair in pairs for half in pair]
        rows.append((resolution, np.mean(sizes), np.mean(agreements), np.std(agreements)))
        found.append(pairs)
        failed = 0 if np.mean(agreements) >= least else failed + 1
        resolution *= STEP
    return AgreementCurve(*np.array(rows).T), found


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
        table = np.zeros((half.max() + 1, clusters.max() + 1))
        np.add.at(table, (half, clusters), 1)
        kept += table.argmax(1)[half] == clusters
    return kept / len(halves)


def merge_by_depth(clusters: Codes, cells: Floats, alike: Floats) -> Codes:
    """Clusters (n,) of cells (n, k), those together that depth alone would set apart.

    `alike` (n, k) are cells of the same depths that do not differ otherwise. Nothing else tells two clusters apart if
    most of the squared distance between their means goes when these are taken away.
    """
    clusters = clusters.copy()
    while clusters.max():
        means = np.array([cells[clusters == code].mean(0) for code in range(clusters.max() + 1)])
        by_depth = np.array([alike[clusters == code].mean(0) for code in range(clusters.max() + 1)])
        left = pdist(means - by_depth, "sqeuclidean") / np.maximum(pdist(means, "sqeuclidean"), 1e-12)
        if left.min() >= LEFT:
            break
        first, second = np.argwhere(squareform(left == left.min()))[0]
        clusters[clusters == second] = first
        clusters = np.unique(clusters, return_inverse=True)[1]
    return clusters
