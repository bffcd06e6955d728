"""The one chunk iterator: float32 chunks of cells from any matrix that AnnData can hold.

The whole matrix is never densified, and never read at once where it is on disk or lazy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice._core.standardize import Chunk
from dice._errors import InputError, SlotError

#: Entries of a dense chunk: 64 MB of float32, whatever the number of genes.
CHUNK_ENTRIES = 16_000_000


class Matrix:
    """Cells of one matrix of an AnnData object, chunk by chunk, for a choice of genes.

    Parameters
    ----------
    adata
        Holds the matrix.
    layer
        Name of a layer, or None for ``X``.
    genes
        Positions of the wanted genes in the wanted order, or None for all.
    chunk_size
        Cells in a chunk; None chooses about 64 MB as dense float32.
    """

    def __init__(
        self,
        adata: AnnData,
        *,
        layer: str | None = None,
        genes: NDArray[np.intp] | None = None,
        chunk_size: int | None = None,
    ) -> None:
        self.data = _rows_first(_get(adata, layer))
        self.names = adata.obs_names
        self.n_cells = adata.n_obs
        identity = genes is None or np.array_equal(genes, np.arange(adata.n_vars))
        self.genes = None if identity else genes
        self.n_genes = adata.n_vars if genes is None else len(genes)
        self.chunk_size = chunk_size or max(CHUNK_ENTRIES // max(adata.n_vars, 1), 256)

    def slices(self) -> list[slice]:
        """Consecutive ranges of cells that cover the matrix."""
        starts = range(0, self.n_cells, self.chunk_size)
        return [slice(start, min(start + self.chunk_size, self.n_cells)) for start in starts]

    def __len__(self) -> int:
        return len(self.slices())

    def __iter__(self) -> Iterator[Chunk]:
        return (self.read(rows) for rows in self.slices())

    def read(self, rows: slice) -> Chunk:
        """Cells `rows` as dense or CSR float32; values that are not finite raise with cell names."""
        block = self.data[rows]
        if hasattr(block, "compute"):
            block = block.compute()
        if sparse.issparse(block):
            chunk: Chunk = sparse.csr_array(block, dtype=np.float32)
        else:
            chunk = np.asarray(block, dtype=np.float32)
        if self.genes is not None:
            chunk = chunk[:, self.genes]
        self._check_finite(chunk, rows)
        return chunk

    def _check_finite(self, chunk: Chunk, rows: slice) -> None:
        values = chunk.data if sparse.issparse(chunk) else chunk
        # A sum is finite only if its terms are: one pass without a mask in the usual case.
        if np.isfinite(np.sum(values, dtype=np.float64)):
            return
        finite = np.isfinite(chunk.toarray() if sparse.issparse(chunk) else chunk).all(1)
        bad = self.names[rows][~finite]
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


def _rows_first(data: Any) -> Any:
    """CSC in memory becomes CSR once; everything else can be cut by cells as it is."""
    if sparse.issparse(data) and data.format != "csr":
        return data.tocsr()
    return data
