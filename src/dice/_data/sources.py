"""Read blocks of cells as float32 from any kind of matrix.

CSR matrices are sliced by rows. A matrix stored by columns is converted to rows once, in memory, for the chosen genes
only. Lazy matrices are computed block by block.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Self, TypeAlias

import h5py
import numpy as np
from anndata.abc import CSCDataset, CSRDataset
from scipy import sparse

from dice._errors import DiceError, FileError, InputError
from dice._model.arrays import Sums
from dice._types import Chunk, Codes, Floats, Mask

#: Chunks of cells, each with the range of cells that it holds.
Numbered: TypeAlias = Iterator[tuple[Chunk, slice]]
#: Entries of a dense block: 64 MB of float32.
BLOCK_ENTRIES = 16_000_000
#: Maximum counts of a gene in a cell. float32 cannot tell larger whole numbers apart.
MOST_COUNTS = 2.0**24


@dataclass
class Rules:
    """Rules for reading values: a `factor` that rescales them before log1p, and the values that are refused.

    Values outside `smallest` and `largest` are refused or, with `whole`, values that are not counts.
    """

    factor: float = 1.0
    smallest: float = -np.inf
    largest: float = np.inf
    whole: bool = False

    def hold(self, values: Floats) -> bool:
        """Return whether all values are finite and allowed. A sum is finite only if all of its terms are."""
        outside = bool(values.size) and (values.max() > self.largest or values.min() < self.smallest)
        odd = not_whole(values).any() if self.whole else outside
        return not odd and bool(np.isfinite(np.sum(values, dtype=np.float64)))


class BadValuesError(InputError):
    """Values are not finite, or break the rules of their matrix. Arguments: rows, positions of genes, and values."""


@contextmanager
def readable() -> Iterator[None]:
    """Turn errors of reading, for example from a truncated or deleted file, into one sentence."""
    try:
        yield
    except DiceError:
        raise
    except (OSError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FileError(f"The matrix cannot be read ({reason}): check that its file is complete.") from error


def check_size(data: Any) -> None:
    """Check that a file is not shorter than when it was opened, because HDF5 would read zeros."""
    stored = getattr(data, "group", data)
    if isinstance(stored, h5py.Dataset | h5py.Group) and Path(stored.file.filename).is_file():
        expected, there = stored.file.id.get_filesize(), Path(stored.file.filename).stat().st_size
        if there < expected:
            raise FileError(f"{stored.file.filename!r} became {expected - there} bytes shorter: open the file again.")


def checked(matrix: Any) -> Any:
    """Return a block after checking its sparse indices. With wrong indices, scipy would access other memory."""
    if not sparse.issparse(matrix):
        return matrix
    indptr, indices = matrix.indptr, matrix.indices
    ordered = indptr[0] == 0 and indptr[-1] <= len(indices) and not (indptr[1:] < indptr[:-1]).any()
    length = matrix.shape[1 if matrix.format == "csr" else 0]
    if not ordered or (len(indices) and not 0 <= indices.min() <= indices.max() < length):
        raise FileError("A sparse matrix is damaged, because its indices exceed its shape: get its file again.")
    return matrix


def cut(genes: Codes | None, n_cells: int, rules: Rules, block: Any, rows: slice) -> Numbered:
    """Yield clean chunks of at most `n_cells` cells from a block that holds the cells `rows`.

    A block without cells yields one empty chunk, so that its results have a shape.
    """
    for start in range(rows.start, max(rows.stop, rows.start + 1), n_cells):
        stop = min(start + n_cells, rows.stop)
        yield clean(block[start - rows.start : stop - rows.start], genes, start, rules), slice(start, stop)


def clean(block: Any, genes: Codes | None, start: int | Codes, rules: Rules) -> Chunk:
    """Return the chosen genes of a block of cells, after checking the values by the rules.

    `start` is the position of the first cell, or the positions of all cells, for errors.
    """
    chunk = float32_copy(block)
    if genes is not None:
        chunk = chunk[:, genes]
        if sparse.issparse(chunk):  # Sums must not depend on the order of the file.
            chunk.sort_indices()
    values = stored_values(chunk)
    if not rules.hold(values):
        odd = not_whole(values) if rules.whole else (values > rules.largest) | (values < rules.smallest)
        wrong = np.nonzero(~(np.abs(values) <= np.finfo(np.float32).max) | odd)
        cells = np.searchsorted(chunk.indptr, wrong[0], side="right") - 1 if sparse.issparse(chunk) else wrong[0]
        columns = chunk.indices[wrong[0]] if sparse.issparse(chunk) else wrong[1]
        raise BadValuesError(start + cells if isinstance(start, int) else start[cells], columns, values[wrong])
    if rules.factor != 1:
        values[...] = np.log1p(np.expm1(values.astype(np.float64)) * rules.factor)
    return chunk


def stored_values(chunk: Chunk) -> Floats:
    """Return all values of a dense matrix, or the stored values of a sparse matrix."""
    return chunk.data if sparse.issparse(chunk) else chunk


def cells_with(chunk: Chunk, mask: Mask) -> Mask:
    """Return a mask (n,) of the cells with a stored value at which `mask` is True."""
    if not sparse.issparse(chunk):
        return np.asarray(mask.any(axis=1))
    cells = np.repeat(np.arange(chunk.shape[0]), np.diff(chunk.indptr))
    return np.bincount(cells[mask], minlength=chunk.shape[0]) > 0


def not_whole(values: Floats) -> Mask:
    """Return a mask of the values that are not counts. Counts are whole numbers from 0 to `MOST_COUNTS`."""
    with np.errstate(invalid="ignore"):
        return np.asarray((values < 0) | (values > MOST_COUNTS) | (values % 1 != 0))


def float32_copy(block: Any) -> Chunk:
    """Return a copy of a block as float32, without duplicate entries if it is sparse."""
    if not sparse.issparse(block):
        return to_float32(block)
    chunk = CompressedRows.of(block.tocsr())[0 : block.shape[0]]
    chunk.sum_duplicates()
    return chunk


@dataclass(frozen=True)
class CompressedRows:
    """The three arrays of a CSR matrix, in memory or on disk, to slice by rows.

    scipy would read files as a whole, and refuses half precision.
    """

    values: Any
    indices: Any
    indptr: Codes
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: Any) -> Self:
        """Return the rows of a CSR matrix, or of the transpose of a CSC matrix."""
        shape = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
        if isinstance(matrix, CSRDataset | CSCDataset):
            return cls(matrix.group["data"], matrix.group["indices"], matrix.group["indptr"][...], shape)
        return cls(matrix.data, matrix.indices, matrix.indptr, shape)

    def __getitem__(self, rows: slice) -> sparse.csr_array:
        indptr = self.indptr[rows.start : rows.stop + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        parts = (to_float32(self.values[entries]), self.indices[entries], indptr - indptr[0])
        return checked(sparse.csr_array(parts, shape=(len(indptr) - 1, self.shape[1]), copy=True))


def rows_of(data: Any) -> Any:
    """Return an object to slice rows from: an array, or the rows of a sparse matrix."""
    if not is_compressed(data):
        return data
    return CompressedRows.of(data.tocsr() if sparse.issparse(data) else data)


def to_float32(values: Any) -> Floats:
    """Return a copy as float32. Values beyond the range of float32 become infinite, which is an error later."""
    with np.errstate(over="ignore"):
        return np.array(values, dtype=np.float32, order="C")


def add_up(parts: Iterable[Sums]) -> Sums:
    """Return the sum of tuples, entry by entry, in double precision. Few parts are held at a time."""
    in_double = (tuple(np.asarray(value, dtype=np.float64) for value in part) for part in parts)
    return reduce(lambda one, other: tuple(map(np.add, one, other)), in_double)


def is_lazy(data: Any) -> bool:
    """Return whether this is a dask array."""
    return hasattr(data, "compute") and hasattr(data, "chunks")


def is_compressed(data: Any) -> bool:
    """Return whether this is a sparse matrix, in memory or on disk."""
    return sparse.issparse(data) or isinstance(data, CSRDataset | CSCDataset)


def by_columns(data: Any) -> bool:
    """Return whether a matrix is stored by columns: CSC, on disk or not, and dask arrays chunked along genes."""
    if is_lazy(data):
        return len(data.chunks[0]) == 1 and len(data.chunks[1]) > 1
    return is_compressed(data) and data.format == "csc"


def rows_of_columns(data: Any, genes: Codes, rows: Any = slice(None)) -> sparse.csr_array:
    """Return some `rows` and ascending `genes` of a matrix stored by columns, as a CSR array in memory."""
    if is_lazy(data):
        blocks = data.map_blocks(checked, dtype=data.dtype, meta=data._meta)
        return sparse.csr_array(float32_copy(blocks[rows][:, genes].compute()))
    blocks = [block[rows] for block in _columns(data, genes)]
    return sparse.hstack(blocks, format="csr") if blocks else sparse.csr_array((data.shape[0], 0), dtype=np.float32)


def _columns(data: Any, genes: Codes) -> Iterator[sparse.csr_array]:
    """Yield ascending `genes` of a CSC matrix as CSR blocks that would take 64 MB if they were dense."""
    columns, (n_cells, n_genes) = CompressedRows.of(data), data.shape
    size = max(BLOCK_ENTRIES // max(n_cells, 1), 1)
    for start in range(0, n_genes, size):
        stop = min(start + size, n_genes)
        wanted = genes[(genes >= start) & (genes < stop)]
        if len(wanted):
            yield columns[start:stop].T[:, wanted - start].tocsr()
