"""Counts that a user has kept in a layer, beneath log-normalised expression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice._data.matrix import Matrix
from dice._data.preprocessing import FEWEST_COUNTS, is_counts
from dice._data.read import names
from dice._errors import InputError, SlotError
from dice._model.counts import Recovered, normalised
from dice._types import Chunk, Codes

#: Cells whose counts are compared with their expression before anything else.
COMPARED_CELLS = 100
#: Largest difference between the expression and log1p of the counts times their factor; rounding makes 1e-5.
TOLERANCE = 0.05


@dataclass(frozen=True)
class CountsLayer:
    """The counts (n, d) of the same cells and genes as a matrix of log-normalised expression."""

    counts: Matrix
    expression: Matrix

    @classmethod
    def of(cls, adata: AnnData, layer: str, expression: Matrix) -> CountsLayer:
        """Find the layer, and check that it holds counts."""
        if layer not in adata.layers:
            raise SlotError(
                f"There is no layer {layer!r} with counts in {expression.who}.layers (available: "
                f"{sorted(names(adata, 'layers'))}): name another with counts_layer=, or leave it out."
            )
        counts = Matrix(
            adata, layer=layer, genes=expression.genes, chunk_size=expression.chunk_size, who=expression.who
        )
        if not is_counts(counts.sample(), least=FEWEST_COUNTS):
            raise InputError(f"{counts.where} does not hold raw counts: name another layer with counts_layer=.")
        found = cls(counts, expression)
        found.take(np.arange(min(counts.n_cells, COMPARED_CELLS)))
        return found

    def log_depth(self) -> NDArray[np.float32]:
        """Log depth (n,) of all cells: minus the log of what counts were multiplied by, NaN where there are none."""
        totals = np.concatenate(self.counts.each(lambda chunk, rows: np.asarray(chunk.sum(1)).ravel()))
        sums = np.concatenate(self.expression.each(lambda chunk, rows: np.asarray(np.expm1(chunk).sum(1)).ravel()))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(totals > 0, np.log(totals) - np.log(sums), np.nan).astype(np.float32)

    def take(self, cells: Codes) -> Recovered:
        """Counts of some cells, in ascending order, as :func:`dice._model.counts.recover` gives them."""
        return self._recovered(self.expression.take(cells), self.counts.take(cells))

    def beneath(self, chunk: Chunk, rows: slice) -> Recovered:
        """The same of the cells at `rows`, whose expression is at hand."""
        return self._recovered(chunk, self.counts.read(rows))

    def _recovered(self, chunk: Chunk, beneath: Chunk) -> Recovered:
        """Counts beneath an expression, and what they were multiplied by."""
        expression, counts = sparse.csr_array(chunk), sparse.csr_array(beneath)
        totals = np.asarray(counts.sum(1), dtype=np.float64).ravel()
        sums = np.asarray(np.expm1(expression.astype(np.float64)).sum(1)).ravel()
        factor = np.where(totals > 0, sums / np.maximum(totals, 1), np.nan)
        apart = abs(normalised(counts, np.nan_to_num(factor)) - expression)
        if apart.nnz and apart.max() > TOLERANCE:
            raise InputError(
                f"{self.expression.where} is not log1p of normalised counts in {self.counts.where}: name the right "
                "layer with counts_layer=, or leave it out."
            )
        return Recovered(counts.astype(np.float64), factor, np.ones(len(totals), dtype=bool))
