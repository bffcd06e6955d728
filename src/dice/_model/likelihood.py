"""The likelihood of a query: the latents and the noise that its expression gives, without the prior.

Every Gaussian likelihood N(x; V U, s_i^2 diag(psi)) over any subset of the genes reduces to a point y_i and a
covariance s_i^2 C in the latent space: A = V' W V, C = A^-1, y = C V' W x with W = diag(1 / psi).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._model.counts import recover
from dice._model.projection import Completion, Projection, Standardizer, without_self
from dice._types import Chunk, Floats, Mask
from dice.options import Options, StudentT

#: Smallest gene noise as a share of the mean, so that a single gene cannot dominate.
MIN_GENE_NOISE = 0.05


@dataclass(frozen=True)
class Latents:
    """Latents, residuals and depths of cells, without the prior; PCA units."""

    #: Noisy latents (n, k).
    y: NDArray[np.float32]
    #: Residual energy per degree of freedom (n,).
    residual: NDArray[np.float32]
    #: Cells without any expression (n,).
    empty: NDArray[np.bool_]
    #: Log depth (n,); NaN for cells that are not counts.
    log_depth: NDArray[np.float32]
    #: Sum (d,) of the expression of every gene over the cells, without logarithm.
    gene_sums: Floats | float = 0.0

    def __len__(self) -> int:
        return len(self.residual)

    def __getitem__(self, rows: slice) -> Latents:
        return Latents(self.y[rows], self.residual[rows], self.empty[rows], self.log_depth[rows])

    @classmethod
    def joined(cls, parts: Sequence[Latents], n_latent: int) -> Latents:
        """The cells of several chunks, one after the other."""
        nothing = np.empty(0, np.float32)
        none = cls(np.empty((0, n_latent), np.float32), nothing, np.empty(0, bool), nothing)
        columns = ([getattr(part, name) for part in (none, *parts)] for name in ("y", "residual", "empty", "log_depth"))
        y, residual, empty, log_depth = (np.concatenate(column) for column in columns)
        return cls(y, residual, empty, log_depth, gene_sums=sum(part.gene_sums for part in parts))


@dataclass(frozen=True)
class GaussianLikelihood:
    """Gaussian likelihood over the observed genes, with the same relative noise per gene for all cells.

    Unobserved genes are left out, not set to zero: their rows of V and W are absent.
    """

    standardizer: Standardizer
    #: Loadings (d, k) and noise weights (d,) of the observed genes.
    loadings: Floats
    weights: Floats | None
    #: Whether all of the prior's genes are observed.
    complete: bool
    #: Whether a cell of zeros is empty; in data with negative values zeros are ordinary values.
    zero_is_empty: bool = True
    #: How missing genes are filled in; None without missing genes, or if a chain leaves them out.
    completion: Completion | None = None

    @classmethod
    def of(
        cls,
        projection: Projection,
        genes: NDArray[np.intp],
        *,
        per_gene: bool = False,
        zero_is_empty: bool = True,
        fill_in: Floats | None = None,
    ) -> GaussianLikelihood:
        """The likelihood of a query that holds the prior's `genes` (positions, in its order).

        `fill_in` are the variances (k,) of the latents for filling in missing genes.
        """
        noise = projection.gene_noise / max(projection.gene_noise.mean(), 1e-12)
        weights = 1 / np.maximum(noise[genes], MIN_GENE_NOISE) if per_gene else None
        complete, loadings = len(genes) == len(projection.loadings), projection.loadings[genes]
        fills = fill_in is not None and not complete and not per_gene
        return cls(
            projection.standardizer.take(genes),
            loadings,
            weights,
            complete,
            zero_is_empty,
            Completion.of(loadings, np.asarray(fill_in), max(projection.noise, 1e-6)) if fills else None,
        )

    @property
    def isotropic(self) -> bool:
        """Whether C is the identity, so that one evaluation gives the posterior."""
        return self.weights is None and (self.complete or self.completion is not None)

    @property
    def added(self) -> float:
        """Mean noise variance that filled-in genes add to the latents."""
        return 0.0 if self.completion is None else float(self.completion.added.mean())

    @property
    def n_latent(self) -> int:
        return int(self.loadings.shape[1])

    @property
    def degrees_of_freedom(self) -> int:
        """Number of observed genes minus the number of latents, at least 1."""
        return max(len(self.loadings) - self.n_latent, 1)

    @cached_property
    def covariance(self) -> Floats:
        """C (k, k): covariance of y around U for noise of level 1."""
        if self.isotropic:
            return np.eye(self.n_latent, dtype=np.float32)
        loadings = self.loadings.astype(np.float64)
        weighted = loadings if self.weights is None else loadings * self.weights[:, None]
        precision = loadings.T @ weighted
        # Directions without observed genes get a large finite variance.
        floor = 1e-3 * np.trace(precision) / self.n_latent + 1e-12
        return np.linalg.inv(precision + floor * np.eye(self.n_latent)).astype(np.float32)

    def noise_range(self, level: float) -> tuple[float, float]:
        """Smallest and largest noise variance over the directions of the latent space, at noise `level`."""
        spread = np.linalg.eigvalsh(self.covariance) * level**2
        return float(spread[0]), float(spread[-1])

    @cached_property
    def _readout(self) -> Floats:
        if self.isotropic:
            return self.loadings
        weighted = self.loadings if self.weights is None else self.loadings * self.weights[:, None]
        return (weighted @ self.covariance).astype(np.float32)

    def read(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Noisy latents y (n, k) of a chunk of the observed genes, and each cell's noise variance (n,).

        The variance is the weighted residual energy per degree of freedom.
        """
        x = self.standardizer(chunk)
        if self.completion is not None:
            y, left = self.completion.read(x)
            return y, np.maximum(left, 0) / self.degrees_of_freedom
        y = np.asarray(x @ self._readout, dtype=np.float32)
        explained = np.einsum("nk,nk->n", y, y @ np.linalg.inv(self.covariance))
        energy = np.maximum(x.squared_norms(self.weights) - explained, 0)
        return y, energy / self.degrees_of_freedom

    def latents(self, chunk: Chunk, rows: slice | None = None, *, log_depth: Floats | None = None) -> Latents:
        """Latents of a chunk, at any `rows`; cells without any expression are at the origin.

        `log_depth` (n,) is recovered from the values unless it is given.
        """
        y, residual = self.read(chunk)
        empty = _is_empty(chunk) & self.zero_is_empty
        y[empty] = 0
        depth = recover(chunk).log_depth if log_depth is None else log_depth
        with np.errstate(over="ignore"):  # Values that are not logarithms may be large.
            sums = np.asarray(np.expm1(chunk).sum(0), dtype=np.float64).ravel()
        return Latents(y, residual.astype(np.float32), empty, depth, gene_sums=sums)

    def energy(self, latents: Latents) -> Floats:
        """Squared norms (n,) of the standardised cells."""
        return latents.residual * self.degrees_of_freedom + np.square(latents.y).sum(1)

    def honest(self, latents: Latents, own: Mask, projection: Projection) -> Floats:
        """Latents (n, k); those of the reference's `own` cells as if the loadings had been computed without them."""
        if not self.complete:
            return np.asarray(latents.y)
        energy, weight = self.energy(latents), projection.influence
        return np.where(own[:, None], without_self(latents.y, latents.y, energy, energy, weight), latents.y)

    def honest_part(self, part: Latents, expression: Chunk, whole: Chunk, own: Mask, projection: Projection) -> Latents:
        """Latents of parts of cells with this `expression`, with `own` cells corrected as in :meth:`honest`."""
        if not self.complete or not own.any():
            return part
        x, cells = (self.standardizer(sparse.csr_array(chunk)) for chunk in (expression, whole))
        own_y, energy = cells @ projection.loadings, cells.squared_norms()
        y = without_self(part.y, own_y, x.inner(cells), energy, projection.influence)
        return replace(part, y=np.where((own & ~part.empty)[:, None], y, part.y))

    def noise(self, latents: Latents, options: Options, reference_noise: float) -> float:
        """Standard deviation of the noise of the data set per standardised gene.

        A query with too few genes to measure its own noise gets the `reference_noise`.
        """
        if not isinstance(options.noise, str):
            return float(options.noise)
        kind, measured = options.likelihood, latents.residual[~latents.empty]
        # The scale of Student-t noise is smaller than its standard deviation.
        factor = np.sqrt(max(kind.df - 2, 0.5) / kind.df) if isinstance(kind, StudentT) else 1.0
        if len(self.loadings) < 2 * self.n_latent:
            # Too few genes leave no residual, so that the noise of the reference is used.
            return float(factor * reference_noise)
        return float(factor * np.sqrt(measured.mean())) if len(measured) else 0.0


def _is_empty(chunk: Chunk) -> NDArray[np.bool_]:
    return np.asarray(abs(chunk).sum(1)).ravel() == 0 if sparse.issparse(chunk) else ~chunk.any(1)
