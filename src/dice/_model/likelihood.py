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
from dice._model.projection import Projection, Standardizer, without_self
from dice._types import Chunk, Codes, Floats, Mask
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

    Unobserved genes are left out or filled in by their conditional mean. Under x = V U + e with the reference's latent
    variances, the conditional mean of the latents given the observed genes o is w = (V_o'V_o + s^2 / variances)^-1
    V_o' x_o, and that of the missing genes is V_u w. The completed cell is projected to V_o' x_o + (I - V_o'V_o) w:
    the projection that all genes would give, with more noise of known size.
    """

    projection: Projection
    #: Positions (d,) of the observed genes among those of the prior, in its order.
    genes: Codes
    #: Whether genes are weighted by their noise in the reference.
    per_gene: bool = False
    #: Whether a cell of zeros is empty; in data with negative values zeros are ordinary values.
    zero_is_empty: bool = True
    #: Variances (k,) of the latents for filling in missing genes; None leaves the missing genes out.
    fill_in: Floats | None = None

    @cached_property
    def standardizer(self) -> Standardizer:
        return self.projection.standardizer.take(self.genes)

    @cached_property
    def loadings(self) -> Floats:
        """Loadings (d, k) of the observed genes."""
        return self.projection.loadings[self.genes]

    @cached_property
    def weights(self) -> Floats | None:
        """Inverse noise (d,) of the observed genes, relative to the mean gene; None if all have the same noise."""
        noise = self.projection.gene_noise
        relative = noise[self.genes] / max(noise.mean(), 1e-12)
        return 1 / np.maximum(relative, MIN_GENE_NOISE) if self.per_gene else None

    @property
    def complete(self) -> bool:
        """Whether all of the prior's genes are observed."""
        return len(self.genes) == len(self.projection.loadings)

    @property
    def filled(self) -> bool:
        """Whether missing genes are filled in."""
        return self.fill_in is not None and not self.complete and not self.per_gene

    @property
    def isotropic(self) -> bool:
        """Whether C is the identity, so that one evaluation gives the posterior."""
        return self.filled or (self.complete and not self.per_gene)

    @property
    def n_latent(self) -> int:
        return self.projection.n_latent

    @property
    def degrees_of_freedom(self) -> int:
        """Number of observed genes minus the number of latents, at least 1."""
        return max(len(self.genes) - self.n_latent, 1)

    @cached_property
    def _weighted(self) -> Floats:
        """W V (d, k)."""
        return self.loadings if self.weights is None else self.loadings * self.weights[:, None]

    @cached_property
    def _precision(self) -> Floats:
        """V' W V (k, k)."""
        return self.loadings.T.astype(np.float64) @ self._weighted

    @cached_property
    def covariance(self) -> Floats:
        """C (k, k): covariance of y around U for noise of level 1."""
        if self.isotropic:
            return np.eye(self.n_latent, dtype=np.float32)
        # Directions without observed genes get a large finite variance.
        floor = 1e-3 * np.trace(self._precision) / self.n_latent + 1e-12
        return np.linalg.inv(self._precision + floor * np.eye(self.n_latent)).astype(np.float32)

    def noise_range(self, level: float) -> tuple[float, float]:
        """Smallest and largest noise variance over the directions of the latent space, at noise `level`."""
        spread = np.linalg.eigvalsh(self.covariance) * level**2
        return float(spread[0]), float(spread[-1])

    @cached_property
    def filter(self) -> Floats:
        """Conditional mean (k, k) of the latents as a map of V_o' x_o; zero if nothing is filled in."""
        if not self.filled:
            return np.zeros((self.n_latent, self.n_latent), np.float32)
        ratio = max(self.projection.noise, 1e-6) ** 2 / np.maximum(np.asarray(self.fill_in), 1e-12)
        return np.linalg.inv(self._precision + np.diag(ratio)).astype(np.float32)

    @cached_property
    def added(self) -> Floats:
        """Noise variance (k,) that filled-in genes add to every latent."""
        missing = np.eye(self.n_latent) - self._precision
        noise = max(self.projection.noise, 1e-6) ** 2
        return np.maximum(noise * np.diagonal(missing @ self.filter @ missing), 0).astype(np.float32)

    @cached_property
    def _maps(self) -> tuple[Floats, Floats]:
        """Maps A and B (k, k) of products P = x W V: noisy latents are P A, and the explained energy is P B P'."""
        if not self.filled:
            return self.covariance, self.covariance
        identity, gram = np.eye(self.n_latent), self._precision
        latents = identity + self.filter @ (identity - gram)
        explained = self.filter @ (2 * identity - gram @ self.filter)
        return latents.astype(np.float32), explained.astype(np.float32)

    @property
    def readout(self) -> Floats:
        """Matrix (d, k) that maps standardised genes to noisy latents."""
        return self._weighted @ self._maps[0]

    def read(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Noisy latents y (n, k) of a chunk of the observed genes, and each cell's noise variance (n,).

        The variance is the weighted residual energy per degree of freedom.
        """
        x = self.standardizer(chunk)
        products = x @ self._weighted
        y, explained = products @ self._maps[0], np.einsum("nk,nk->n", products, products @ self._maps[1])
        energy = np.maximum(x.squared_norms(self.weights) - explained, 0)
        return np.asarray(y, dtype=np.float32), energy / self.degrees_of_freedom

    def latents(self, chunk: Chunk, rows: slice | None = None, *, log_depth: Floats | None = None) -> Latents:
        """Latents of a chunk, at any `rows`; cells without any expression are at the origin.

        `log_depth` (n,) is recovered from the values unless it is given.
        """
        y, residual = self.read(chunk)
        empty = (np.asarray(abs(chunk).sum(1)).ravel() == 0) & self.zero_is_empty
        y[empty] = 0
        depth = recover(chunk).log_depth if log_depth is None else log_depth
        with np.errstate(over="ignore"):  # Values that are not logarithms may be large.
            sums = np.asarray(np.expm1(chunk).sum(0), dtype=np.float64).ravel()
        return Latents(y, residual.astype(np.float32), empty, depth, gene_sums=sums)

    def energy(self, latents: Latents) -> Floats:
        """Squared norms (n,) of the standardised cells."""
        return latents.residual * self.degrees_of_freedom + np.square(latents.y).sum(1)

    def honest(self, latents: Latents, own: Mask) -> Floats:
        """Latents (n, k); those of the reference's `own` cells as if the loadings had been computed without them."""
        if not self.complete:
            return np.asarray(latents.y)
        energy = self.energy(latents)
        honest = without_self(latents.y, latents.y, energy, energy, self.projection.influence)
        return np.where(own[:, None], honest, latents.y)

    def honest_part(self, part: Latents, expression: Chunk, whole: Chunk, own: Mask) -> Latents:
        """Latents of parts of cells with this `expression`, with `own` cells corrected as in :meth:`honest`."""
        if not self.complete or not own.any():
            return part
        x, cells = (self.standardizer(sparse.csr_array(chunk)) for chunk in (expression, whole))
        own_y, energy = cells @ self.loadings, cells.squared_norms()
        y = without_self(part.y, own_y, x.inner(cells), energy, self.projection.influence)
        return replace(part, y=np.where((own & ~part.empty)[:, None], y, part.y))

    def noise(self, latents: Latents, options: Options) -> float:
        """Standard deviation of the noise of the data set per standardised gene."""
        if not isinstance(options.noise, str):
            return float(options.noise)
        kind, measured = options.likelihood, latents.residual[~latents.empty]
        # The scale of Student-t noise is smaller than its standard deviation.
        factor = np.sqrt(max(kind.df - 2, 0.5) / kind.df) if isinstance(kind, StudentT) else 1.0
        if len(self.loadings) < 2 * self.n_latent:
            # Too few genes leave no residual, so that the noise of the reference is used.
            return float(factor * self.projection.noise)
        return float(factor * np.sqrt(measured.mean())) if len(measured) else 0.0
