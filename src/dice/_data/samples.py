"""What the values in a sample of cells are: counts, logarithms, scaled genes, or a few that fit nothing."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dice._data.matrix import Matrix
from dice._types import Chunk, Floats

#: Larger values cannot be logarithms: their exponentials overflow.
LARGEST_LOG = 100.0
#: Fewest values other than zero that tell counts from expression that happens to be whole.
FEWEST_COUNTS = 20
#: More than any logarithm: that of a million to base 2 is 20. The largest value without logarithm was at least 300.
LOGGED = 25.0
#: Share of cells with values beyond `LOGGED` up to which these are mistakes among logarithms, and how many times the
#: largest value of all other cells they are at least: without logarithms, values of all sizes are found.
FEW_WILD, GAP = 0.1, 2.0
#: A scaled gene averages out and has a standard deviation of one, each within this bound (of the latter). Of the genes
#: of pbmc68k and of a pancreas atlas sorted by donor, .99 and more average out once scaled; .22 as they are, up to .59
#: corrected by Harmony or ComBat, and .12 of simulated ones with negative values.
CENTRED, MOST = 0.2, 0.8
#: Share of the cells that have a gene's smallest value, once its zeros: .67 in pbmc68k, .11 in those of its genes that
#: more than four of five cells express. Values without zeros, as of regressed genes, have it once.
TIED = 0.05


def is_counts(chunk: Chunk, *, least: int = 0) -> bool:
    """Return whether all values are whole numbers of at least 0, and at least `least` of them are not 0."""
    values = stored_values(chunk)
    if np.count_nonzero(values) < least:
        return False
    return not values.size or bool(values.min() >= 0 and values.max() < np.inf and not np.any(values % 1))


def is_raw(chunk: Chunk) -> bool:
    """Whether a sample of cells holds raw counts; zeros, ones and twos alone may be either."""
    return bool(stored_values(chunk).max(initial=0) >= 3) and is_counts(chunk)


def is_unlogged(chunk: Chunk) -> bool:
    """Whether a sample of cells holds raw counts, or fractions of them that are too large for logarithms."""
    values = stored_values(without_wild(chunk))
    return is_raw(chunk) or bool(values.min(initial=0) >= 0 and LOGGED < values.max(initial=0) < np.inf)


def is_scaled(chunk: Chunk) -> bool:
    """Whether most genes of a sample of cells were centred, by their zeros, which are a negative value, or scaled."""
    chunk = without_wild(chunk)
    if stored_values(chunk).min(initial=0) >= 0 or not np.isfinite(stored_values(chunk)).all():
        return False
    values = np.asarray(chunk.toarray() if sparse.issparse(chunk) else chunk, dtype=np.float64)
    values = values[:, values.std(0) > 0]
    if not values.size:
        return False
    spread = values.std(0)
    centred = np.abs(values.mean(0)) <= CENTRED * spread
    tied = (values == values.min(0)).mean() > TIED + 1 / len(values)
    return bool(centred.mean() > MOST and (tied or (np.abs(spread - 1) <= CENTRED).mean() > MOST))


def without_wild(sample: Chunk) -> Chunk:
    """A sample without the few cells that hold values beyond all logarithms: whoever reads the matrix names them."""
    if is_counts(sample) or not sample.shape[0]:
        return sample
    largest = sample.max(axis=1)
    largest = np.asarray(largest.toarray() if sparse.issparse(largest) else largest).ravel()
    wild = (largest > LOGGED) & (largest < np.inf)
    few = 0 < wild.mean() <= FEW_WILD
    return sample[~wild] if few and largest[wild].min() > GAP * largest[~wild].max() else sample


def refuse_wild(matrix: Matrix, sample: Chunk) -> None:
    """Have a matrix refuse values beyond logarithms where a `sample` of it, or of its reference, holds logarithms."""
    values = stored_values(without_wild(sample))
    if values.min(initial=0) >= 0 and values.max(initial=0) <= LOGGED and not is_counts(sample, least=FEWEST_COUNTS):
        matrix.largest = LOGGED


def stored_values(chunk: Chunk) -> Floats:
    """All values of a dense matrix, and those of a sparse one that are stored."""
    return chunk.data if sparse.issparse(chunk) else chunk
