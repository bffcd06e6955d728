"""The query as the prior sees it: latent points and noise of every cell, read in one pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._anndata.matrix import Matrix
from dice._core.posterior.likelihood import GaussianLikelihood, shrink_noise
from dice._core.standardize import Chunk
from dice._errors import InputError

#: Noise of cells without any expression in units of the latent scale: so large that only the prior speaks.
EMPTY_NOISE = 10.0


@dataclass(frozen=True)
class Cells:
    """All cells of a query; PCA units."""

    #: Latent points (n, k); of a lazy matrix, itself lazy.
    y: NDArray[np.float32]
    #: Residual energy per degree of freedom (n,).
    residual: NDArray[np.float32]
    #: Cells without any expression (n,).
    empty: NDArray[np.bool_]
    #: Latent points (m, k) of a sample of the cells, which are at hand even where all are lazy.
    sample: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))

    @property
    def is_lazy(self) -> bool:
        return not isinstance(self.y, np.ndarray)

    def take(self, rows: slice) -> Cells:
        return Cells(self.y[rows], self.residual[rows], self.empty[rows])


@dataclass(frozen=True)
class Projector:
    """Projects chunks of cells.

    Where values are expression from 0 on, a cell of zeros tells nothing; in data that also have negative values,
    zeros are values like others.
    """

    likelihood: GaussianLikelihood
    zero_is_empty: bool

    def __call__(self, chunk: Chunk, rows: slice) -> Cells:
        y, residual = self.likelihood.read(chunk)
        empty = _is_empty(chunk) if self.zero_is_empty else np.zeros(len(y), dtype=bool)
        y[empty] = 0
        return Cells(y, residual.astype(np.float32), empty)

    @property
    def empty_cell(self) -> NDArray[np.float32] | None:
        """Where a cell of zeros would be projected (k,), were it a cell like others; None where it is one."""
        if not self.zero_is_empty:
            return None
        n_genes = len(self.likelihood.loadings)
        y, _ = self.likelihood.read(np.zeros((1, n_genes), dtype=np.float32))
        return y[0]

    def points(self, chunk: Chunk, rows: slice) -> NDArray[np.float32]:
        return self(chunk, rows).y

    def without_points(self, chunk: Chunk, rows: slice, *, but: NDArray[np.bool_]) -> tuple[slice, Cells]:
        """All but the latent points, and those only of the cells in `but` (n,)."""
        cells = self(chunk, rows)
        return rows, replace(cells, y=cells.y[:0], sample=cells.y[but[rows]])


def read_cells(matrix: Matrix, projector: Projector, sampled: NDArray[np.bool_]) -> Cells:
    """Project all cells in one pass; those without any expression are named in a warning.

    The points of a lazy matrix stay lazy. The pass is made all the same: it tells the noise, and that all is well.
    """
    n, k = matrix.n_cells, projector.likelihood.n_latent
    y = matrix.map_rows(projector.points, (k,)) if matrix.is_lazy else np.empty((n, k), dtype=np.float32)
    cells = Cells(y, np.empty(n, dtype=np.float32), np.empty(n, dtype=bool))
    if matrix.is_lazy:
        sample = [np.empty((0, k), dtype=np.float32)]
        for rows, part in matrix.each(partial(projector.without_points, but=sampled), desc="Projecting"):
            cells.residual[rows], cells.empty[rows] = part.residual, part.empty
            sample.append(part.sample)
        cells = replace(cells, sample=np.concatenate(sample))
    else:
        matrix.each(partial(_fill, cells, projector), desc="Projecting")
        cells = replace(cells, sample=y[sampled])
    warn_of_empty(matrix, cells)
    return cells


def warn_of_empty(matrix: Matrix, cells: Cells) -> None:
    if cells.empty.any():
        names = list(matrix.names[cells.empty][:5])
        _log.warn(
            f"{cells.empty.sum()} cells express none of the prior's genes and get the prior, for example {names}."
        )


def _fill(cells: Cells, projector: Projector, chunk: Chunk, rows: slice) -> None:
    part = projector(chunk, rows)
    cells.y[rows], cells.residual[rows], cells.empty[rows] = part.y, part.residual, part.empty


def cell_noise(
    cells: Cells, noise: str | float, *, n_genes: int, df: float | None, scale: float, reference_noise: float
) -> tuple[float, NDArray[np.float32]]:
    """Noise level of the data set and standard deviation of every cell (n,).

    Parameters
    ----------
    cells
        The query.
    noise
        As in :func:`dice.tl.denoise`.
    n_genes
        Number of observed genes.
    df
        Degrees of freedom where the noise is Student-t, whose scale is smaller than its standard deviation.
    scale
        Latent scale of the prior.
    reference_noise
        Noise of the reference, for queries with too few genes to measure their own.
    """
    if not isinstance(noise, str | int | float):
        raise InputError(f"noise={noise!r} is not a number, 'estimate', 'per_cell' or 'per_gene'.")
    if isinstance(noise, str) and noise not in ("estimate", "per_cell", "per_gene"):
        raise InputError(f"noise={noise!r} is not a number, 'estimate', 'per_cell' or 'per_gene'.")
    if not isinstance(noise, str) and not (np.isfinite(noise) and noise > 0):
        raise InputError(f"noise={noise} is not a positive number.")
    measured = cells.residual[~cells.empty]
    # The scale of Student-t noise is smaller than its standard deviation.
    factor = 1.0 if df is None else np.sqrt(max(df - 2, 0.5) / df)
    level = factor * float(np.sqrt(measured.mean())) if len(measured) else 0.0
    if n_genes < 2 * cells.y.shape[1]:
        # Too few genes leave no residual to measure: the reference's noise is the better guess.
        level = factor * reference_noise
    if not isinstance(noise, str):
        level = float(noise)
    each = np.full(cells.y.shape[0], level, dtype=np.float32)
    if noise == "per_cell" and n_genes >= 2 * cells.y.shape[1]:
        each[~cells.empty] = factor * np.sqrt(shrink_noise(measured, n_genes - cells.y.shape[1]))
    each[cells.empty] = EMPTY_NOISE * scale
    return float(level), each


def _is_empty(chunk: Chunk) -> NDArray[np.bool_]:
    if sparse.issparse(chunk):
        return np.asarray(abs(chunk).sum(1)).ravel() == 0
    return ~chunk.any(1)
