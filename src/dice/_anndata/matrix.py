"""The one chunk iterator: float32 chunks of cells from any matrix that AnnData can hold.

The whole matrix is never densified, and never read at once where it is on disk or lazy. (A view of a backed object
is an exception of AnnData's making: it reads the selected cells when it is asked for its matrix.)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice._anndata import sources
from dice._core.standardize import Chunk
from dice._errors import InputError, SlotError

#: Cells in a sample, and the number of places in the matrix that they are taken from.
SAMPLE_CELLS = 1024
SAMPLE_PLACES = 8


class Matrix:
    """Cells of one matrix of an AnnData object, chunk by chunk, for a choice of genes.

    Parameters
    ----------
    adata
        Holds the matrix.
    layer
        Name of a layer, or None for ``X``; ``.raw`` is never looked at.
    genes
        Positions of the wanted genes in the wanted order, or None for all.
    chunk_size
        Cells in a chunk; None chooses about 64 MB as dense float32. Lazy arrays are cut where their blocks
        end, so that a pass computes every block once.
    """

    def __init__(
        self,
        adata: AnnData,
        *,
        layer: str | None = None,
        genes: NDArray[np.intp] | None = None,
        chunk_size: int | None = None,
    ) -> None:
        self.names = adata.obs_names
        self.n_cells = adata.n_obs
        self.n_genes = adata.n_vars if genes is None else len(genes)
        self._block_size = max(sources.BLOCK_ENTRIES // max(adata.n_vars, 1), 256)
        self.chunk_size = chunk_size or self._block_size
        #: The matrix as AnnData holds it, and the positions of the genes in it.
        self.data = _get(adata, layer)
        self.genes = np.arange(adata.n_vars) if genes is None else np.asarray(genes)

    @cached_property
    def _opened(self) -> tuple[Any, NDArray[np.intp] | None]:
        """Something to cut rows from, and the positions of the genes in it (None: it holds just these)."""
        data, genes = self.data, self.genes
        if sources.by_columns(data):
            kept, genes = np.unique(genes, return_inverse=True)
            data = sources.turn_around(data, kept)
        elif sources.is_lazy(data):
            data = sources.LazyRows(data)
        elif sources.is_compressed(data):
            data = sources.CompressedRows.of(data)
        identity = np.array_equal(genes, np.arange(data.shape[1]))
        return data, None if identity else genes

    def slices(self) -> list[slice]:
        """Consecutive ranges of cells that cover the matrix."""
        edges = getattr(self._opened[0], "edges", np.zeros(1, dtype=np.intp))
        ranges, start = [], 0
        while start < self.n_cells:
            stop = min(start + self.chunk_size, self.n_cells)
            edge = int(edges[np.searchsorted(edges, stop, side="right") - 1])
            stop = edge if edge > start else stop
            ranges.append(slice(start, stop))
            start = stop
        return ranges

    def __len__(self) -> int:
        return len(self.slices())

    def __iter__(self) -> Iterator[Chunk]:
        return (self.read(rows) for rows in self.slices())

    def read(self, rows: slice) -> Chunk:
        """Cells `rows` as dense or CSR float32, never the user's own memory.

        Values that are not finite raise with cell names.
        """
        stored, genes = self._opened
        chunk = _own(stored[rows])
        if genes is not None:
            chunk = chunk[:, genes]
        self._check_finite(chunk, rows)
        return chunk

    def sample(self, n_cells: int = SAMPLE_CELLS) -> Chunk:
        """About `n_cells` cells from a few places in the matrix, with *all* genes and unchecked values.

        For checks and statistics only: which cells these are depends on the order of the file.
        """
        n_cells = min(n_cells, self.n_cells, self._block_size)
        places = min(SAMPLE_PLACES, max(n_cells, 1))
        size = n_cells // places
        starts = np.linspace(0, self.n_cells - size, places).astype(np.intp)
        if sources.by_columns(self.data):
            return sources.take_rows(self.data, np.unique(starts[:, None] + np.arange(size)))
        stored = self._opened[0]
        blocks = [_own(stored[int(start) : int(start) + size]) for start in starts]
        return sparse.vstack(blocks, format="csr") if sparse.issparse(blocks[0]) else np.concatenate(blocks)

    def _check_finite(self, chunk: Chunk, rows: slice) -> None:
        values = chunk.data if sparse.issparse(chunk) else chunk
        # A sum is finite only if its terms are: one pass without a mask in the usual case.
        if np.isfinite(np.sum(values, dtype=np.float64)):
            return
        wrong = np.nonzero(~np.isfinite(values))[0]
        cells = np.searchsorted(chunk.indptr, wrong, side="right") - 1 if sparse.issparse(chunk) else wrong
        bad = self.names[rows][np.unique(cells)]
        raise InputError(
            f"{len(bad)} cells hold NaN or infinite values, for example {list(bad[:5])}: "
            "remove them or set these values, for example "
            "adata.X = np.nan_to_num(adata.X, posinf=0, neginf=0)."
        )


def _get(adata: AnnData, layer: str | None) -> Any:
    if layer is None:
        if adata.X is None:
            raise SlotError("adata.X is empty: name the layer to use with layer=.")
        return adata.X
    if layer not in adata.layers:
        raise SlotError(f"There is no layer {layer!r}; available: {sorted(adata.layers)}.")
    return adata.layers[layer]


def _own(block: Any) -> Chunk:
    """A block as float32 in memory of its own; each entry of a sparse one is stored once."""
    if not sparse.issparse(block):
        return sources.to_float32(block)
    chunk = sources.CompressedRows.of(block.tocsr())[0 : block.shape[0]]
    chunk.sum_duplicates()
    return chunk
