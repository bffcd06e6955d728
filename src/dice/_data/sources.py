"""Cells of whatever holds them, as clean float32 blocks.

CSR is cut by rows; what is stored by columns is turned around once; a lazy matrix is computed block by block.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from anndata.abc import CSCDataset, CSRDataset
from numpy.typing import NDArray
from scipy import sparse

from dice._errors import DiceError, FileError, InputError
from dice._types import Chunk

#: Entries of a dense block: 64 MB of float32.
BLOCK_ENTRIES = 16_000_000


class NotFiniteError(InputError):
    """Cells at the positions `rows` hold values that are not finite."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__(rows)
        self.rows = rows


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


def rows_of(data: Any) -> Any:
    """Something to cut consecutive rows from, for a matrix that is not stored by columns."""
    if is_lazy(data):
        return LazyRows(data)
    return CompressedRows.of(data) if is_compressed(data) else data


def clean(block: Any, genes: NDArray[np.intp] | None, start: int | NDArray[np.intp], factor: float = 1.0) -> Chunk:
    """Chosen genes of cells from position `start` on, or at some positions, finite, and times `factor` before log1p."""
    chunk = own(block)
    if genes is not None:
        chunk = chunk[:, genes]
    values = chunk.data if sparse.issparse(chunk) else chunk
    if not np.isfinite(np.sum(values, dtype=np.float64)):  # a sum is finite only if its terms are
        wrong = np.nonzero(~np.isfinite(values))[0]
        cells = np.searchsorted(chunk.indptr, wrong, side="right") - 1 if sparse.issparse(chunk) else wrong
        wrong = np.unique(cells)
        raise NotFiniteError((start + wrong if isinstance(start, int) else start[wrong]).tolist())
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


class LazyRows:
    """Rows of a dask array, computed in its own blocks, each of them once in a pass.

    A block that holds more cells than are asked for at a time is kept until the next one is needed.
    """

    def __init__(self, data: Any) -> None:
        self.data = data
        self.shape: tuple[int, int] = data.shape
        #: Where one block of cells ends and the next one begins.
        self.edges: NDArray[np.intp] = np.concatenate([[0], np.cumsum(data.chunks[0])]).astype(np.intp)
        self._range: tuple[int, int] = (0, 0)
        self._block: Any = None

    def __getitem__(self, rows: slice) -> Any:
        first = self.edges[max(np.searchsorted(self.edges, rows.start, side="right") - 1, 0)]
        last = self.edges[np.searchsorted(self.edges, rows.stop)]
        if self._block is None or self._range != (first, last):
            self._block = None  # Two blocks are never held at once.
            block = self.data[first:last].compute()
            self._block = CompressedRows.of(block.tocsr()) if sparse.issparse(block) else block
            self._range = (first, last)
        return self._block[rows.start - first : rows.stop - first]


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


def take_rows(data: Any, rows: NDArray[np.intp]) -> sparse.csr_array:
    """A few `rows` with all genes of a matrix stored by columns, in one pass over it."""
    parts = [block[rows] for _, block in _column_blocks(data, np.arange(data.shape[1]))]
    return sparse.hstack(parts, format="csr") if parts else sparse.csr_array((len(rows), 0), dtype=np.float32)


def turn_around(data: Any, genes: NDArray[np.intp]) -> CompressedRows:
    """The ascending `genes` of a matrix stored by columns as float32 rows.

    From memory this is scipy's conversion. From disk the columns are streamed twice: once to count the entries of
    every cell, once to put each entry in its place in temporary files. Memory is that of a block of columns; the
    files take 8 bytes per entry in the folder that ``TMPDIR`` names.
    """
    if sparse.issparse(data):
        columns = CompressedRows.of(data)[0 : data.shape[1]].T
        return CompressedRows.of(columns[:, genes].tocsr())
    counts = np.zeros(data.shape[0], dtype=np.int64)
    for _, block in _column_blocks(data, genes):
        counts += np.diff(block.indptr)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices, values = _scratch(indptr[-1], np.int32), _scratch(indptr[-1], np.float32)
    free = indptr[:-1].copy()
    for first, block in _column_blocks(data, genes):
        counts = np.diff(block.indptr)
        places = np.repeat(free - block.indptr[:-1], counts) + np.arange(block.nnz)
        indices[places], values[places] = block.indices + first, block.data
        free += counts
    return CompressedRows(values, indices, indptr, (data.shape[0], len(genes)))


def _column_blocks(data: Any, genes: NDArray[np.intp]) -> Iterator[tuple[int, sparse.csr_array]]:
    """Ascending `genes` in blocks of bounded size as float32 CSR, each with the rank of its first gene."""
    for start, stop in _column_ranges(data):
        first, last = np.searchsorted(genes, [start, stop])
        if first < last:
            block = _columns(data, start, stop)
            yield int(first), block[:, genes[first:last] - start].tocsr()


def _columns(data: Any, start: int, stop: int) -> sparse.csc_array:
    """Consecutive columns as float32."""
    if is_lazy(data):
        data = data[:, start:stop].compute()
        if not sparse.issparse(data):
            return sparse.csc_array(to_float32(data))
        data, start, stop = data.tocsc(), 0, data.shape[1]
    return CompressedRows.of(data)[start:stop].T


def _column_ranges(data: Any) -> list[tuple[int, int]]:
    """Ranges of columns to read at once: dask's own, or what would fill a block if it were dense."""
    n_cells, n_genes = data.shape
    if is_lazy(data):
        edges = np.concatenate([[0], np.cumsum(data.chunks[1])])
    else:
        edges = np.append(np.arange(0, n_genes, max(BLOCK_ENTRIES // max(n_cells, 1), 1)), n_genes)
    return [(int(start), int(stop)) for start, stop in pairwise(edges)]


def _scratch(size: int, dtype: type) -> NDArray[Any]:
    """An array in a temporary file that has no name and goes when the array does."""
    if not size:
        return np.empty(0, dtype)
    with tempfile.TemporaryFile(prefix="dice-") as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=(int(size),))
