"""Figures that tell how a matrix was preprocessed, from a sample of its cells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._core.standardize import Chunk, Floats

#: Cells that suffice to see whether all of them have the same total, and the fewest that show it.
TOTAL_CELLS, FEWEST_CELLS = 64, 10
#: Totals of normalised cells agree up to the rounding of the file and a few genes that were filtered later.
TOTAL_SPREAD = 0.02
#: Larger values are no logarithms, and their exponentials soon overflow.
LARGEST = 100.0

#: What undoes each transformation that normalised expression may have gone through; all keep zeros.
INVERSES: dict[str, Callable[[Floats], Floats]] = {
    "log": np.expm1,
    "none": np.asarray,
    "twice": lambda x: np.expm1(np.expm1(x)),
    "log2": lambda x: np.exp2(x) - 1,
}


def matrix_statistics(sample: Chunk, genes: NDArray[np.intp] | None = None) -> dict[str, float]:
    """Describe the values of a matrix for later comparison; nothing where they are not finite or there are none.

    Parameters
    ----------
    sample
        Cells with all genes, as from :meth:`Matrix.sample`.
    genes
        Positions of the genes in use; None for all.

    Returns
    -------
    Of the genes in use: ``minimum`` and ``maximum``; ``nonzero``, the number of such values in the sample;
    ``counts``, 1 for whole numbers only; ``centred``, 1 for scaled or centred genes; ``cell_total``, the median over
    cells of the sum of expm1, or 0 where that makes no sense. Of *all* genes, for each transformation in `INVERSES`:
    ``sum_<name>``, the total that every cell has once it is undone, or 0 where the cells do not agree on one.
    """
    used = sample if genes is None else sample[:, genes]
    values = used.data if sparse.issparse(used) else used
    if not used.shape[0] or not np.isfinite(np.sum(values, dtype=np.float64)):
        return {}
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    if sparse.issparse(used) and used.nnz < np.prod(used.shape):
        low, high = min(low, 0.0), max(high, 0.0)
    cells = np.linspace(0, sample.shape[0] - 1, min(TOTAL_CELLS, sample.shape[0])).astype(np.intp)
    return {
        "minimum": low,
        "maximum": high,
        "nonzero": float(np.count_nonzero(values)),
        "counts": float(is_counts(used)),
        "centred": float(low < 0 and _is_centred(used)),
        "cell_total": 0.0 if low < 0 or high > LARGEST else float(np.median(row_sums(used, np.expm1))),
        **{f"sum_{name}": _common_total(sample[cells], undo) for name, undo in INVERSES.items()},
    }


def is_counts(chunk: Chunk) -> bool:
    """Whether there are whole numbers from 0 on and nothing else, with enough of them to mean it."""
    values = chunk.data if sparse.issparse(chunk) else chunk
    return bool(np.count_nonzero(values) >= 20 and values.min() >= 0 and not np.any(values % 1))


def row_sums(chunk: Chunk, function: Callable[[Floats], Floats]) -> Floats:
    """Sum of ``function(x)`` over the genes of every cell, for functions that keep zero; infinite if it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not sparse.issparse(chunk):
            return function(np.asarray(chunk, dtype=np.float64)).sum(1)
        values = function(chunk.data.astype(np.float64))
        return np.asarray(sparse.csr_array((values, chunk.indices, chunk.indptr), shape=chunk.shape).sum(1)).ravel()


def _is_centred(chunk: Chunk) -> bool:
    """Whether genes were centred: the zeros of each are one repeated negative value, or all values average out.

    Batch correction makes values negative too, but ties none of them and keeps the mean.
    """
    values = chunk.toarray() if sparse.issparse(chunk) else chunk
    tied = (values == values.min(0)).mean() > 0.25
    return bool(tied or abs(values.mean(dtype=np.float64)) < 0.1 * values.std(dtype=np.float64))


def _common_total(cells: Chunk, undo: Callable[[Floats], Floats]) -> float:
    """The total that all cells share once a transformation is undone, or 0."""
    totals = row_sums(cells, undo)
    totals = totals[totals != 0]  # Empty cells have nothing to say.
    if len(totals) < FEWEST_CELLS or not np.isfinite(totals).all():
        return 0.0
    low, middle, high = np.quantile(totals, [0.05, 0.5, 0.95])
    return float(middle) if middle > 0 and high - low < TOTAL_SPREAD * middle else 0.0
