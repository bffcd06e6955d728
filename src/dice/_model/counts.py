"""Recover the counts and the depth of cells from their log-normalised values.

A value is log1p(c f), where c is the count and f = T / t is the factor of a cell with t counts in total, normalised to
the target sum T. The smallest value of a cell has c = 1, so its expm1 is f. Division by f gives all other counts. The
target sum, the total and the missing genes need not be known. The log depth of a cell is -log f = log(t / T).
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._types import Chunk, Floats, Mask

#: Largest distance from a whole number that counts as a rounding error. The distance was at most 3e-5 after rounding to
#: float32 on six data sets, and at least 0.1 for values that were corrected, scaled or smoothed.
WHOLE = 1e-2
#: Above this count, the accepted rounding error grows with the count.
EXACT = 1000.0
#: Largest accepted count of a gene. If a value is a larger multiple of the smallest value, the smallest is no count.
LARGEST_COUNT = 1e7
#: Possible counts of the smallest value of a cell, tried in this order. In five UMI data sets every cell has a count of
#: 1 among 1,500 genes; deep cells may have no count of 1.
SMALLEST_COUNTS = (1, 2, 3, 4, 5, 6)


#: Share of the cells with expression whose values must be counts. In six data sets this holds for all cells, in
#: scanpy's pbmc68k_reduced, whose values were corrected, for a quarter.
MOSTLY = 0.9


def judge_counts(log_depth: NDArray[np.float32], empty: Mask, who: str = "adata") -> tuple[bool, str]:
    """Return whether a data set consists of counts, and a warning if some of its cells do not (their depth is NaN)."""
    stray = np.isnan(log_depth[~empty])
    counted = bool(len(stray)) and stray.mean() <= 1 - MOSTLY
    if not stray.any():
        return counted, ""
    noise = "they are read at the reference's typical depth" if counted else "its noise is assumed, not measured"
    return counted, f"{stray.sum()} of {len(stray)} cells of {who} are not log-normalised counts: {noise}."


@dataclass(frozen=True)
class CellCounts:
    """Counts (n, d) of cells, or of random parts of them, as CSR, and the factor (n,) that normalises each cell.

    `whole` (n,) is True for cells whose values are counts. All other cells have zeros instead of counts.
    """

    counts: sparse.csr_array
    factor: NDArray[np.float64]
    whole: Mask

    @property
    def log_depth(self) -> NDArray[np.float32]:
        """Log depth -log f (n,) of every cell; NaN for empty cells and for cells whose values are not counts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.whole, -np.log(self.factor), np.nan).astype(np.float32)

    @property
    def expression(self) -> sparse.csr_array:
        """The log-normalised values (n, d)."""
        return normalised(self.counts, np.nan_to_num(self.factor))

    def joined(self, other: Self) -> Self:
        """Add the counts of another part of the same cells. Both parts must have the same sparse entries."""
        counts = self.counts.copy()
        counts.data = self.counts.data + other.counts.data
        # The factor of a cell is inverse to its total, and the totals of both parts add up.
        return replace(self, counts=counts, factor=1 / (1 / self.factor + 1 / other.factor))


def recover(chunk: Chunk) -> CellCounts:
    """Recover the counts of log-normalised cells (n, d). A cell without expression has zero counts and no depth."""
    matrix = sparse.csr_array(chunk)
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    n, lengths = matrix.shape[0], np.diff(matrix.indptr)
    cell, filled = np.repeat(np.arange(n), lengths), lengths > 0
    with np.errstate(over="ignore"):
        values = np.expm1(matrix.data.astype(np.float64))
    smallest = np.full(n, np.nan)
    smallest[filled] = np.minimum.reduceat(values, matrix.indptr[:-1][filled]) if filled.any() else np.nan
    counts, factor, whole = np.zeros_like(values), smallest.copy(), ~filled
    # Cells with negative values, or with values that overflow, have no counts.
    hopeless = (smallest <= 0) | (np.bincount(cell, weights=~np.isfinite(values), minlength=n) > 0)
    for tried in SMALLEST_COUNTS:
        entries = np.flatnonzero(~(whole | hopeless)[cell])
        if not len(entries):
            break
        ratio = values[entries] * tried / smallest[cell[entries]]
        nearest = np.round(ratio)
        wrong = np.abs(ratio - nearest) > WHOLE * np.maximum(1.0, nearest / EXACT)
        wrong |= nearest > LARGEST_COUNT
        failed = np.bincount(cell[entries], weights=wrong, minlength=n) > 0
        solved = ~(whole | hopeless | failed)
        mine = solved[cell[entries]]
        counts[entries[mine]] = nearest[mine]
        factor[solved], whole = smallest[solved] / tried, whole | solved
    return CellCounts(sparse.csr_array((counts, matrix.indices, matrix.indptr), shape=matrix.shape), factor, whole)


def normalised(counts: sparse.csr_array, factor: NDArray[np.floating]) -> sparse.csr_array:
    """Return log1p(counts * factor), with one factor per cell."""
    factors = np.repeat(factor.astype(np.float32), np.diff(counts.indptr))
    values = np.log1p(counts.data.astype(np.float32) * factors)
    return sparse.csr_array((values, counts.indices, counts.indptr), shape=counts.shape)


#: Assumed target sum of the normalisation: counts per ten thousand. The counts of a cell in missing genes follow from
#: this sum, so that a random part of a cell can be normalised by its own total.
TARGET_SUM = 1e4
#: Cells that would keep more than this share of their counts keep all of them.
WHOLE_SHARE = 0.9
#: Purposes of random numbers. The purpose is the upper word of a cell's key, so every purpose has other random numbers.
THINNED, HALVES, ALIKE = 0, 1 << 64, 2 << 64


def split(
    cells: CellCounts, shares: Floats, rng: np.random.Generator, *, target_sum: float = TARGET_SUM
) -> list[CellCounts]:
    """Split the counts of every cell at random into disjoint parts.

    Parameters
    ----------
    cells
        Counts of cells.
    shares
        Share (n, parts) of the counts that goes to each part. The sum of a row is at most 1.
    rng
        Source of randomness.
    target_sum
        Target sum of the normalisation. Counts of missing genes are split as well.
    """
    matrix, n = cells.counts, cells.counts.shape[0]
    left, cell = matrix.data.astype(np.int64), np.repeat(np.arange(n), np.diff(matrix.indptr))
    outside, total = _totals(cells, target_sum)
    parts, rest = [], np.ones(n)
    for share in shares.T:
        # Share of this part among the counts that are left after earlier parts.
        chance = np.minimum(share / np.maximum(rest, 1e-12), 1.0)
        taken, taken_outside = binomial(left, chance[cell], rng), rng.binomial(outside, chance)
        left, outside, rest = left - taken, outside - taken_outside, rest - share
        own = np.bincount(cell, weights=taken, minlength=n) + taken_outside
        parts.append(_share(cells, taken, own, total))
    return parts


def halves(cells: CellCounts, seeds: NDArray[np.int64], n_splits: int) -> list[tuple[CellCounts, CellCounts]]:
    """Split the counts of every cell into two halves, `n_splits` times. The seed of a cell determines its halves."""
    return _in_two(cells, np.full(len(seeds), 0.5), seeds, HALVES, n_splits, TARGET_SUM)


def alike(cells: CellCounts, profile: Floats, seeds: NDArray[np.int64]) -> sparse.csr_array:
    """Simulate cells (n, d) with the same totals as `cells`, but with counts drawn from one common `profile` (d,)."""
    cumulative, n_genes = np.cumsum(profile), len(profile)
    genes, counts = [], []
    for seed, total in zip(seeds, np.asarray(cells.counts.sum(1)).ravel().astype(np.int64), strict=True):
        rng = _own_generator(seed, ALIKE)
        if total > n_genes:
            drawn = rng.multinomial(total, profile)
            found = np.flatnonzero(drawn)
            drawn = drawn[found]
        else:  # Draw a gene for every count: 20 times faster for shallow cells.
            places = np.minimum(np.searchsorted(cumulative, rng.random(total)), n_genes - 1)
            found, drawn = np.unique(places, return_counts=True)
        genes.append(found)
        counts.append(drawn)
    bounds = np.concatenate([[0], np.cumsum([len(found) for found in genes], dtype=np.intp)])
    data, indices = (np.concatenate([np.empty(0, np.intp), *parts]) for parts in (counts, genes))
    return sparse.csr_array((data.astype(np.float32), indices, bounds), shape=cells.counts.shape)


def thinned(
    cells: CellCounts, shares: Floats, seeds: NDArray[np.int64], target_sum: float = TARGET_SUM, strays: Chunk = None
) -> sparse.csr_array:
    """Keep a random share (n,) of the counts of every cell, and return log-normalised expression (n, d).

    `seeds` (n,) determine which counts are kept. Cells whose values are not counts keep their expression, which is
    taken from `strays` (n, d).
    """
    shares = np.where(shares < WHOLE_SHARE, shares, 1.0)
    ((kept, _),) = _in_two(cells, shares, seeds, THINNED, 1, target_sum)
    if strays is None or cells.whole.all():
        return kept.expression
    lines, n = sparse.vstack([kept.expression, sparse.csr_array(strays)], format="csr"), len(cells.whole)
    return lines[np.arange(n) + np.where(cells.whole, 0, n)]


def _in_two(
    cells: CellCounts, shares: Floats, seeds: NDArray[np.int64], purpose: int, n_splits: int, target_sum: float
) -> list[tuple[CellCounts, CellCounts]]:
    """Split the counts of every cell into a random share (n,) and the rest, `n_splits` times.

    The result of a cell depends on its counts and its seed only, not on chunks or the order of cells.
    """
    matrix, n = cells.counts, cells.counts.shape[0]
    counts, bounds = matrix.data.astype(np.int64), matrix.indptr
    outside, total = _totals(cells, target_sum)
    taken, own = np.zeros((n_splits, len(counts)), np.int64), np.zeros((n_splits, n), np.int64)
    for i in range(n):
        rng = _own_generator(seeds[i], purpose)
        entries = slice(bounds[i], bounds[i + 1])
        taken[:, entries] = rng.binomial(counts[entries], shares[i], (n_splits, bounds[i + 1] - bounds[i]))
        own[:, i] = taken[:, entries].sum(1) + rng.binomial(outside[i], shares[i], n_splits)
    return [
        (_share(cells, part, n_own, total), _share(cells, counts - part, total - n_own, total))
        for part, n_own in zip(taken, own, strict=True)
    ]


def _own_generator(seed: np.int64, purpose: int) -> np.random.Generator:
    """Return the random generator of one cell for one purpose."""
    return np.random.Generator(np.random.Philox(key=int(seed) % 2**64 + purpose))


def _totals(cells: CellCounts, target_sum: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the counts (n,) of every cell in missing genes (0 if values are not counts), and in all genes."""
    inside = cells.counts.sum(1, dtype=np.float64).astype(np.int64)
    factor = np.where(cells.whole, np.nan_to_num(cells.factor, nan=np.inf), np.inf)
    total = np.maximum(np.round(target_sum / factor), inside).astype(np.int64)
    return total - inside, total


def _share(cells: CellCounts, taken: NDArray[np.int64], own: NDArray[np.int64], total: NDArray[np.int64]) -> CellCounts:
    """Return a part of every cell: the counts `taken`, one for every sparse entry, with the factors of the part.

    `own` (n,) is the total count of the part and `total` (n,) that of the cell, both with missing genes.
    """
    whole = cells.counts
    counts = sparse.csr_array((taken.astype(np.float32), whole.indices, whole.indptr), shape=whole.shape)
    return CellCounts(counts, cells.factor * total / np.maximum(own, 1), cells.whole)


def binomial(counts: NDArray[np.int64], share: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw from Binomial(counts, share), entry by entry (m,).

    Most counts of single cells are one and need a single comparison. This takes 10 ms, instead of numpy's 27 ms, for
    the 0.9 million entries of bmmc.
    """
    kept = (rng.random(len(counts), dtype=np.float32) < share).astype(np.int64)
    many = np.flatnonzero(counts != 1)
    kept[many] = rng.binomial(counts[many], share[many])
    return kept
