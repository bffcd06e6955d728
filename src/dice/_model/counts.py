"""Counts and depth of cells out of their log-normalised values.

A value is log1p(c f) for a count c and the factor f = T / t of a cell with t counts and the target sum T. It is
smallest for c = 1, so that the smallest positive expm1 of a cell is f. Division by f gives the counts. The target sum,
the total and the missing genes need not be known. The depth of a cell is -log f: its total in units of the target sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._types import Chunk, Mask

#: Distance from a whole number that rounding of float32 values may make: at most 3e-5 on six data sets; values that
#: were corrected, scaled or smoothed are 0.1 and more away.
WHOLE = 1e-2
#: Above this count, rounding grows with the count.
EXACT = 1000.0
#: Largest count of a gene that is accepted; with larger ratios the smallest value is not a count.
LARGEST_COUNT = 1e7
#: Counts that are tried for the smallest value of a cell. All cells of five UMI data sets have a 1 among 1,500 genes;
#: deep cells may lack one.
SMALLEST_COUNTS = (1, 2, 3, 4, 5, 6)


#: Share of the cells with expression that must be counts. All cells of six data sets are, and a quarter of the cells of
#: scanpy's pbmc68k_reduced, whose values were corrected.
MOSTLY = 0.9


def judge_counts(log_depth: NDArray[np.float32], empty: Mask, who: str = "adata") -> tuple[bool, str]:
    """Whether a data set is made of counts, and a warning; depths (n,) are NaN for cells that are not."""
    stray = np.isnan(log_depth[~empty])
    counted = bool(len(stray)) and stray.mean() <= 1 - MOSTLY
    if not stray.any():
        return counted, ""
    noise = "they are read at the reference's typical depth" if counted else "its noise is assumed, not measured"
    return counted, f"{stray.sum()} of {len(stray)} cells of {who} are not log-normalised counts: {noise}."


@dataclass(frozen=True)
class Recovered:
    """Counts (n, d) as CSR, the factor (n,) of each cell, and a mask (n,) of cells that are made of counts."""

    counts: sparse.csr_array
    factor: NDArray[np.float64]
    whole: Mask

    @property
    def log_depth(self) -> NDArray[np.float32]:
        """Depth -log f (n,) of every cell; NaN for empty cells and for cells that are not counts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.whole, -np.log(self.factor), np.nan).astype(np.float32)


def recover(chunk: Chunk) -> Recovered:
    """Counts of log-normalised cells (n, d), cell by cell. A cell without expression is whole and has no depth."""
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
    # Negative values and values that overflow are not counts.
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
    return Recovered(sparse.csr_array((counts, matrix.indices, matrix.indptr), shape=matrix.shape), factor, whole)


def normalised(counts: sparse.csr_array, factor: NDArray[np.floating]) -> sparse.csr_array:
    """log1p(counts * factor), cell by cell."""
    factors = np.repeat(factor.astype(np.float32), np.diff(counts.indptr))
    values = np.log1p(counts.data.astype(np.float32) * factors)
    return sparse.csr_array((values, counts.indices, counts.indptr), shape=counts.shape)
