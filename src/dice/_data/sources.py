"""Cells of whatever holds them, as clean float32 blocks.

CSR is cut by rows; what is stored by columns is turned around once; a lazy matrix is computed block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from anndata.abc import CSCDataset, CSRDataset
from numpy.typing import NDArray
from scipy import sparse

from dice._errors import DiceError, FileError, InputError
from dice._types import Chunk, Floats

#: Entries of a dense block: 64 MB of float32.
BLOCK_ENTRIES = 16_000_000
#: Larger values cannot be logarithms: their exponentials overflow.
LARGEST_LOG = 100.0
#: Fewest values other than zero that tell counts from expression that happens to be whole.
FEWEST_COUNTS = 20
#: More than any logarithm: that of a million to base 2 is 20. The largest value without logarithm was at least 300.
LOGGED = 25.0
#: Share of cells with values beyond `LOGGED` up to which these are mistakes among logarithms, and how many times the
#: largest value of all other cells they are at least: without logarithms, values of all sizes are found.
FEW_WILD, WILD_GAP = 0.1, 2.0
#: A scaled gene averages out and has a standard deviation of one, each within this bound (of the latter). Of the genes
#: of pbmc68k and of a pancreas atlas sorted by donor, .99 and more average out once scaled; .22 as they are, up to .59
#: corrected by Harmony or ComBat, and .12 of simulated ones with negative values.
CENTRED, MOST = 0.2, 0.8
#: Share of the cells that have a gene's smallest value, once its zeros: .67 in pbmc68k, .11 in those of its genes that
#: more than four of five cells express. Values without zeros, as of regressed genes, have it once.
TIED = 0.05


class BadValuesError(InputError):
    """Values at the positions `rows` and `genes` are not finite, or larger than any other."""

    def __init__(self, rows: NDArray[np.intp], genes: NDArray[np.intp], values: NDArray[np.float32]) -> None:
        super().__init__(rows, genes, values)
        self.rows, self.genes, self.values = rows, genes, values


@contextmanager
def readable() -> Iterator[None]:
    """A file that ends too early or has vanished is told in one sentence, whatever the library that reads it says."""
    try:
        yield
    except DiceError:
        raise
    except (OSError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FileError(f"The matrix cannot be read ({reason}): check that its file is complete.") from error


def check_size(data: Any) -> None:
    """HDF5 reads zeros beyond the end of a file that became shorter: that is found out before."""
    stored = getattr(data, "group", data)
    if isinstance(stored, h5py.Dataset | h5py.Group) and Path(stored.file.filename).is_file():
        expected, there = stored.file.id.get_filesize(), Path(stored.file.filename).stat().st_size
        if there < expected:
            raise FileError(
                f"{stored.file.filename!r} has {there} bytes left of {expected} since it was opened: read it again."
            )


def clean(
    block: Any,
    genes: NDArray[np.intp] | None,
    start: int | NDArray[np.intp],
    factor: float = 1.0,
    largest: float = np.inf,
) -> Chunk:  # fmt: skip
    """Chosen genes of cells from position `start` on, or at some positions, times `factor` before log1p.

    Values must be finite, and not beyond the `largest`.
    """
    chunk = own(block)
    if genes is not None:
        chunk = chunk[:, genes]
        if sparse.issparse(chunk):  # Sums are taken in the order of the prior's genes, whatever that of the file is.
            chunk.sort_indices()
    values = chunk.data if sparse.issparse(chunk) else chunk
    # A sum is finite only if its terms are.
    if not np.isfinite(np.sum(values, dtype=np.float64)) or values.max(initial=-np.inf) > largest:
        wrong = np.nonzero(~(np.abs(values) <= np.finfo(np.float32).max) | (values > largest))
        cells = np.searchsorted(chunk.indptr, wrong[0], side="right") - 1 if sparse.issparse(chunk) else wrong[0]
        columns = chunk.indices[wrong[0]] if sparse.issparse(chunk) else wrong[1]
        raise BadValuesError(start + cells if isinstance(start, int) else start[cells], columns, values[wrong])
    if factor != 1:
        values[...] = np.log1p(np.expm1(values.astype(np.float64)) * factor)
    return chunk


def own(block: Any) -> Chunk:
    """A block as float32 in memory of its own; each entry of a sparse one is stored once."""
    block = as_scipy(block)
    if not sparse.issparse(block):
        return to_float32(block)
    chunk = CompressedRows.of(block.tocsr())[0 : block.shape[0]]
    chunk.sum_duplicates()
    return chunk


@dataclass(frozen=True)
class CompressedRows:
    """The three arrays of a CSR matrix, in memory or on disk, cut by rows without scipy's help.

    It would read temporary files as a whole to choose a type for the indices, and refuses half precision.
    """

    values: Any
    indices: Any
    indptr: NDArray[np.integer]
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: Any) -> CompressedRows:
        """Rows of a CSR matrix, or those of the transpose of a CSC matrix."""
        shape = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
        if isinstance(matrix, CSRDataset | CSCDataset):
            return cls(matrix.group["data"], matrix.group["indices"], matrix.group["indptr"][...], shape)
        return cls(matrix.data, matrix.indices, matrix.indptr, shape)

    def __getitem__(self, rows: slice) -> sparse.csr_array:
        indptr = self.indptr[rows.start : rows.stop + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        parts = (to_float32(self.values[entries]), self.indices[entries], indptr - indptr[0])
        return sparse.csr_array(parts, shape=(len(indptr) - 1, self.shape[1]), copy=True)


def to_float32(values: Any) -> NDArray[np.float32]:
    """A copy as float32; what is beyond its range becomes infinite, to be reported as such later."""
    with np.errstate(over="ignore"):
        return np.array(on_host(values), dtype=np.float32, order="C")


def on_host(values: Any) -> Any:
    """An array that lives on a GPU (cupy's, or any that speaks DLPack) in memory; others as they are."""
    if isinstance(values, np.ndarray) or not hasattr(values, "__dlpack__"):
        return values
    from torch.utils.dlpack import from_dlpack

    return from_dlpack(values).cpu().numpy()


def as_scipy(block: Any) -> Any:
    """A sparse block of cupy's as scipy's; others as they are."""
    if sparse.issparse(block) or not all(hasattr(block, name) for name in ("indptr", "indices", "tocsr")):
        return block
    rows = block.tocsr()
    parts = tuple(np.asarray(on_host(part)) for part in (rows.data, rows.indices, rows.indptr))
    return sparse.csr_matrix(parts, shape=rows.shape)


def is_lazy(data: Any) -> bool:
    """Whether this is a dask array."""
    return hasattr(data, "compute") and hasattr(data, "chunks")


def is_compressed(data: Any) -> bool:
    """Whether this is a sparse matrix, in memory or on disk."""
    return sparse.issparse(data) or isinstance(data, CSRDataset | CSCDataset)


def by_columns(data: Any) -> bool:
    """Whether single cells are expensive to get at: CSC, on disk or not, and lazy arrays cut along genes only."""
    if is_lazy(data):
        return len(data.chunks[0]) == 1 and len(data.chunks[1]) > 1
    return is_compressed(data) and data.format == "csc"


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
    return sample[~wild] if few and largest[wild].min() > WILD_GAP * largest[~wild].max() else sample


def stored_values(chunk: Chunk) -> Floats:
    """All values of a dense matrix, and those of a sparse one that are stored."""
    return chunk.data if sparse.issparse(chunk) else chunk
