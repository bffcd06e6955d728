"""Test the genes of every split of a tree on counts that were not used to place the cells.

The two halves of a cell's counts are placed in the tree separately. Cells are grouped by one half, and genes are
compared on the other half. The halves are independent given the cell, because counts are Poisson given the cell.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import betainc
from scipy.stats import false_discovery_control, norm

from dice._clusters.tree import MARKER_COLUMNS, Cut
from dice._data.sources import add_up
from dice._model.counts import halves, recover
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats

#: Smallest tail probability: that of 37 standard deviations.
SMALLEST_TAIL = 1e-300


class SideSums(NamedTuple):
    """Sums over the cells of every leaf, for each of h halves of the counts: (h, leaves), or (h, leaves, d) by gene."""

    cells: Floats
    depth: Floats
    counts: Floats
    #: Squared counts, divided by the depth of the cell.
    squares: Floats

    def of(self, leaves: Sequence[int]) -> "SideSums":
        """Return the sums over several leaves together."""
        return SideSums(*(part[:, leaves].sum(1) for part in self))


def leaf_sums(
    leaves: NDArray[np.integer], n_leaves: int, seeds: NDArray[np.int64], chunk: Chunk, rows: slice
) -> SideSums:
    """Return the sums of a chunk by leaf. One half of the counts gives the leaf (n, h), the other half is summed."""
    cells, leaves, sums = recover(chunk), leaves[rows], []
    pairs = halves(cells, seeds[rows], leaves.shape[1] // 2)
    for one, other in zip(leaves.T, (part for pair in pairs for part in reversed(pair)), strict=True):
        used = np.flatnonzero((one >= 0) & cells.whole & (other.factor > 0))
        factor, place, shape = other.factor[used], (one[used], used), (n_leaves, len(leaves))
        member, depths, squared = (
            sparse.csr_array((weight, place), shape=shape) for weight in (np.ones(len(used)), 1 / factor, factor)
        )
        counts = sparse.csr_array(other.counts, dtype=np.float64)
        sums.append((member.sum(1), depths.sum(1), (member @ counts).toarray(), (squared @ counts**2).toarray()))
    return SideSums(*map(np.stack, zip(*sums, strict=True)))


def compare(first: SideSums, second: SideSums) -> tuple[Floats, Floats]:
    """Return scores (d,) and log2 fold changes (d,) of genes; both are positive if the first group has more counts.

    Under the null hypothesis, each count of a gene falls into the first group with a probability equal to that group's
    share of the depth, so the group's counts are binomial. If counts are overdispersed within the groups, they are
    divided by their dispersion. The score is the mean of the standard normal deviates over all halves. This mean varies
    at most as much as one deviate, so the test is conservative.
    """
    share = (first.depth / (first.depth + second.depth))[:, None]
    spread: Floats = np.zeros_like(first.counts)
    rates = []
    for group in (first, second):
        rate = group.counts / group.depth[:, None]
        spread = spread + group.squares / np.maximum(rate, 1e-300) - group.counts
        rates.append((group.counts + 0.5) / group.depth[:, None])
    dispersion = np.maximum(spread / np.maximum(first.cells + second.cells - 2, 1)[:, None], 1.0)
    one, other = first.counts / dispersion, second.counts / dispersion
    more = np.where(one > 0, betainc(np.maximum(one, 1e-9), other + 1, share), 1.0)
    fewer = np.where(other > 0, betainc(np.maximum(other, 1e-9), one + 1, 1 - share), 1.0)
    tail = np.clip(np.minimum(more, fewer), SMALLEST_TAIL, 0.5)
    scores = np.where(more < fewer, 1, -1) * norm.isf(tail)
    return scores.mean(0), np.log2(rates[0] / rates[1]).mean(0)


def split_genes(query: Query, cut: Cut, leaves: NDArray[np.integer], n_genes: int | None) -> pd.DataFrame:
    """Return the marker genes of both sides of every split above a cut.

    `leaves` (n, h) holds the leaf of each of the h halves of a cell's counts.
    """
    tree = cut.tree
    parts = query.matrix.each(partial(leaf_sums, leaves, tree.n_leaves, query.seeds), desc="Comparing genes")
    sums = SideSums(*add_up(parts))
    names, tables = query.prior.genes[query.match.prior].astype(str), []
    for joined in reversed(tree.joined[len(tree.joined) - len(cut.nodes) + 1 :].tolist()):
        sides = [sums.of(tree.leaves(node)) for node in joined]
        if min(side.cells.min() for side in sides) < 1:
            continue
        scores, change = compare(*sides)
        p_values = 2 * norm.sf(np.abs(scores))
        adjusted = false_discovery_control(p_values)
        for (node, against), sign in ((joined, 1), (joined[::-1], -1)):
            best: Codes = np.argsort(-sign * scores, kind="stable")[:n_genes]
            columns = names, sign * scores, sign * change, p_values, adjusted
            found = (cut.node_names[node], cut.node_names[against], *(column[best] for column in columns))
            tables.append(pd.DataFrame(dict(zip(MARKER_COLUMNS, found, strict=True))))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(MARKER_COLUMNS))
