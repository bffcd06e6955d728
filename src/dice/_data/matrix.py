"""Read cells as float32 chunks from any matrix that AnnData can hold.

The matrix is never densified as a whole, and never read at once if it is on disk or lazy. (The matrix of a view of a
backed object is an exception: AnnData reads it at once.)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import chain, starmap
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._arguments import known_key
from dice._data import lazy, sources
from dice._data.read import names
from dice._data.sources import Numbered, clean, cut, float32_copy, readable
from dice._errors import InputError, SlotError
from dice._model.arrays import Sums
from dice._types import Chunk, Codes, Mask

#: Cells in a sample, and the number of places in the matrix that they come from.
SAMPLE_CELLS, SAMPLE_PLACES = 1024, 8

T = TypeVar("T")


class Matrix:
    """Cells of one matrix of an AnnData object, chunk by chunk, for a choice of genes.

    Parameters
    ----------
    adata
        Holds the matrix.
    layer
        Name of a layer, or None for ``X``; ``.raw`` is never read.
    genes
        Positions of the wanted genes in the wanted order, or None for all.
    chunk_size
        Cells in a chunk; None chooses about 64 MB as dense float32. Lazy arrays are cut where their blocks
        end, so that a pass computes every block once.
    who
        Name of the object in errors.
    """

    def __init__(
        self, adata: AnnData, *, layer: str | None = None, genes: Codes | None = None, chunk_size: int | None = None,
        who: str = "adata",
    ) -> None:  # fmt: skip
        self.who, self.layer, self.where = who, layer, f"{who}.X" if layer is None else f"{who}.layers[{layer!r}]"
        self.names, self.gene_names = adata.obs_names, adata.var_names
        self.n_cells = adata.n_obs
        self.n_genes = adata.n_vars if genes is None else len(genes)
        self._block_size = max(sources.BLOCK_ENTRIES // max(adata.n_vars, 1), 256)
        self.chunk_size = chunk_size or self._block_size
        #: The matrix as AnnData holds it, and the positions of the genes in it.
        if layer is not None:
            known_key(layer, names(adata, "layers"), "layer", f"{who}.layers")
        with readable():
            self.data = adata.X if layer is None else adata.layers[layer]
            sources.check_size(self.data)
        if self.data is None:
            raise SlotError(f"{who}.X is empty: name the layer to use with layer=.")
        if np.issubdtype(self.data.dtype, np.complexfloating):
            raise InputError(f"{self.where} must hold real numbers, got {self.data.dtype}.")
        self.genes = np.arange(adata.n_vars) if genes is None else np.asarray(genes)
        #: Values that break these rules raise an error that names their cells and genes.
        self.rules = sources.Rules()
        #: Whether dask can go through the cells, block by block.
        self.is_lazy = sources.is_lazy(self.data) and not sources.by_columns(self.data)

    @cached_property
    def _opened(self) -> tuple[Any, Codes | None]:
        """An object to slice rows from, and the positions of the genes in it (None for all)."""
        data, genes = self.data, self.genes
        if sources.by_columns(data):
            kept, genes = np.unique(genes, return_inverse=True)
            data = sources.rows_of_columns(data, kept)
        return sources.rows_of(data), None if np.array_equal(genes, np.arange(data.shape[1])) else genes

    @property
    def in_memory(self) -> bool:
        """Whether the matrix is an array or a sparse matrix in memory."""
        return isinstance(self.data, np.ndarray) or sparse.issparse(self.data)

    def _cutter(self) -> Callable[[Any, slice], Numbered]:
        return partial(cut, self._opened[1], self.chunk_size, self.rules)

    def chunks(self) -> Numbered:
        """Yield chunks of dense or CSR float32 with their rows, always as copies. A matrix without cells has one chunk.

        Values that are not finite raise an error that names their cells.
        """
        with self._names_in_errors():
            blocks = lazy.computed(self.data) if self.is_lazy else [(self._opened[0], slice(0, self.n_cells))]
            yield from chain.from_iterable(starmap(self._cutter(), blocks))

    def __iter__(self) -> Iterator[Chunk]:
        return map(itemgetter(0), self.chunks())

    def each(self, function: Callable[[Chunk, slice], T], *, desc: str = "Reading") -> list[T]:
        """Return ``function(chunk, rows)`` of all chunks in order. Workers of dask call it if the matrix is lazy."""
        return list(chain.from_iterable(self._gathered(partial(listed, function), desc)))

    def take(self, cells: Codes) -> Chunk:
        """Return some cells, in ascending order, as one chunk. Other cells are not read if rows are in memory."""
        if isinstance(self.data, np.ndarray) or (sparse.issparse(self.data) and self.data.format == "csr"):
            genes = self._opened[1]
            with self._names_in_errors():
                return clean(self.data[cells], genes, cells, self.rules)
        wanted = np.zeros(self.n_cells, dtype=bool)
        wanted[cells] = True
        parts = self.each(lambda chunk, rows: chunk[wanted[rows]])
        return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.concatenate(parts)

    def apply(self, function: Callable[[Chunk], NDArray[Any]]) -> NDArray[Any]:
        """Return ``function(chunk)`` of all chunks, concatenated."""
        return np.concatenate(self.each(lambda chunk, rows: function(chunk)))

    def total(self, function: Callable[[Chunk], Sums], cells: Mask | None = None) -> Sums:
        """Return the sum of ``function(chunk)`` over all chunks, or over the chosen `cells` (n,)."""
        (total,) = self._gathered(partial(summed, cells, function), "Adding up", summed=True)
        return total

    def _gathered(self, gather: Callable[[Numbered], T], desc: str, *, summed: bool = False) -> list[T]:
        """Return the results of `gather` for all chunks or for each dask block, or with `summed` their sum."""
        if not self.is_lazy:
            with _log.progress(total=self.n_cells, desc=desc, unit="cell") as bar:
                return [gather(_shown(self.chunks(), bar))]
        with self._names_in_errors():
            function = partial(lazy.on_block, gather, self._cutter())
            return lazy.run(self.data, function, desc=desc, summed=summed)

    def check_values(self) -> None:
        """Read all values before other work begins, to raise errors about refused values early."""
        values = self.data.data if sparse.issparse(self.data) else self.data
        # Usually one check of all stored values suffices. float64 may be finite and yet too large for float32.
        if not isinstance(values, np.ndarray) or values.dtype == np.float64 or not self.rules.hold(values):
            self.each(lambda *_: None, desc="Checking")

    @contextmanager
    def _names_in_errors(self) -> Iterator[None]:
        """Raise errors about refused values with the names of their cells and genes."""
        try:
            with readable():
                yield
        except sources.BadValuesError as error:
            rows, genes, values = error.args
            bad, genes = self.names[np.unique(rows)], self.gene_names[self.genes[genes]]
            if np.isfinite(values).all():
                far = "negative" if values[0] < 0 else "too large for logarithms"
                odd = "not counts" if self.rules.whole else far
                raise InputError(
                    f"{len(values)} values in {self.where} are {odd}, unlike all others, for example "
                    f"{values[0]:.4g} of gene {genes[0]!r} in cell {self.names[rows[0]]!r}: correct or remove them."
                ) from error
            raise InputError(
                f"{len(bad)} cells hold NaN or infinite values, for example {list(bad[:5])} in {self.where}: remove "
                f"them or set these values, for example {self.where} = np.nan_to_num({self.where}, posinf=0, neginf=0)."
            ) from error

    @readable()
    def sample(self, n_cells: int = SAMPLE_CELLS) -> Chunk:
        """Return about `n_cells` cells from a few places in the matrix, with *all* genes and unchecked values.

        The sample is for checks and statistics only, because it depends on the order of the file.
        """
        n_cells = min(n_cells, self.n_cells, self._block_size)
        places = min(SAMPLE_PLACES, max(n_cells, 1))
        size = n_cells // places
        starts = np.linspace(0, self.n_cells - size, places).astype(np.intp)
        if sources.by_columns(self.data) or self.is_lazy:
            rows = np.unique(starts[:, None] + np.arange(size))
            return sources.rows_of_columns(self.data, np.arange(self.data.shape[1]), rows)
        stored = self._opened[0]
        blocks = [float32_copy(stored[int(start) : int(start) + size]) for start in starts]
        return sparse.vstack(blocks, format="csr") if sparse.issparse(blocks[0]) else np.concatenate(blocks)


def _shown(chunks: Numbered, bar: Any) -> Numbered:
    """Return the chunks, and count their cells on a progress bar."""

    def counted(chunk: Chunk, rows: slice) -> tuple[Chunk, slice]:
        bar.update(rows.stop - rows.start)
        return chunk, rows

    return starmap(counted, chunks)


def listed(function: Callable[[Chunk, slice], T], chunks: Numbered) -> list[T]:
    """Return the results of all chunks. Two chunks are never held at once."""
    return list(starmap(function, chunks))


def summed(cells: Mask | None, function: Callable[[Chunk], Sums], chunks: Numbered) -> Sums:
    """Return the sum of ``function(chunk)`` over the chosen `cells` (n,), or over all cells."""
    return sources.add_up(function(chunk if cells is None else chunk[cells[rows]]) for chunk, rows in chunks)
