"""The likelihood of a query: latents and their noise, computed from expression without the prior.

Every Gaussian likelihood N(x; V U, s_i^2 diag(psi)) over any subset of the genes reduces to a point y_i and a
covariance s_i^2 C in the latent space. With W = diag(1 / psi), C = (V' W V)^-1 and y = C V' W x.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._model.counts import recover
from dice._model.projection import Projection, Standardizer, without_self
from dice._types import Chunk, Codes, Floats, Mask
from dice.options import Options, StudentT

#: Smallest noise of a gene, as a share of the mean over genes, so that a single gene cannot dominate.
MIN_GENE_NOISE = 0.05


@dataclass(frozen=True)
class Latents:
    """Latents, residuals and depths of cells, computed without the prior; in PCA units."""

    #: Noisy latents (n, k).
    y: NDArray[np.float32]
    #: Residual variance (n,): the sum of squares that the latents do not explain, per degree of freedom.
    residual: NDArray[np.float32]
    #: Mask (n,) of cells without any expression.
    empty: NDArray[np.bool_]
    #: Log depth (n,); NaN for cells whose values are not counts.
    log_depth: NDArray[np.float32]
    #: Sum (d,) of expm1(expression) of every gene over the cells.
    gene_sums: Floats | float = 0.0

    def __len__(self) -> int:
        return len(self.residual)

    def __getitem__(self, rows: slice) -> Self:
        return type(self)(self.y[rows], self.residual[rows], self.empty[rows], self.log_depth[rows])

    @classmethod
    def joined(cls, parts: Sequence[Self], n_latent: int) -> Self:
        """Concatenate the latents of several chunks."""
        names, nothing = ("y", "residual", "empty", "log_depth"), np.empty(0, np.float32)
        parts = [cls(np.empty((0, n_latent), np.float32), nothing, np.empty(0, bool), nothing), *parts]
        y, residual, empty, log_depth = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        return cls(y, residual, empty, log_depth, sum(part.gene_sums for part in parts))


@dataclass(frozen=True)
class GaussianLikelihood:
    """Gaussian likelihood over the observed genes, with the same relative noise per gene for all cells.

    Unobserved genes are left out, or filled in by their conditional mean. Under x = V U + e with the reference's latent
    variances, the conditional mean of the latents given the observed genes o is w = (V_o'V_o + s^2 / variances)^-1
    V_o' x_o. The conditional mean of the unobserved genes u is V_u w. The completed cell has the projection
    V_o' x_o + (I - V_o'V_o) w. This estimates the projection of all genes, with additional noise of known size.
    """

    projection: Projection
    #: Positions (d,) of the observed genes among the prior's genes, in the prior's order.
    genes: Codes
    #: Whether genes are weighted by their noise in the reference.
    per_gene: bool = False
    #: Whether a cell of zeros is empty; in data with negative values zeros are ordinary values.
    zero_is_empty: bool = True
    #: Variances (k,) of the reference's latents, to fill in missing genes. None leaves missing genes out.
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
        """Inverse noise (d,) of the observed genes, relative to their mean noise; None if all have the same noise."""
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
        """Whether C is the identity, so that one evaluation of the denoiser gives the posterior."""
        return self.filled or (self.complete and not self.per_gene)

    @property
    def degrees_of_freedom(self) -> int:
        """Number of observed genes minus the number of latents, at least 1."""
        return max(len(self.genes) - self.projection.n_latent, 1)

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
        """C (k, k): covariance of y around U if the noise has standard deviation 1."""
        if self.isotropic:
            return np.eye(self.projection.n_latent, dtype=np.float32)
        # Directions without observed genes get a large finite variance.
        floor = 1e-3 * np.trace(self._precision) / self.projection.n_latent + 1e-12
        return np.linalg.inv(self._precision + floor * np.eye(self.projection.n_latent)).astype(np.float32)

    def noise_range(self, level: float) -> tuple[float, float]:
        """Return the smallest and largest noise variance over all directions of the latent space, at noise `level`."""
        spread = np.linalg.eigvalsh(self.covariance) * level**2
        return float(spread[0]), float(spread[-1])

    @cached_property
    def filter(self) -> Floats:
        """Matrix (k, k) that maps V_o' x_o to the conditional mean of the latents; zero if nothing is filled in."""
        if not self.filled:
            return np.zeros((self.projection.n_latent, self.projection.n_latent), np.float32)
        ratio = max(self.projection.noise, 1e-6) ** 2 / np.maximum(np.asarray(self.fill_in), 1e-12)
        return np.linalg.inv(self._precision + np.diag(ratio)).astype(np.float32)

    @cached_property
    def added(self) -> Floats:
        """Noise variance (k,) that filled-in genes add to every latent."""
        missing = np.eye(self.projection.n_latent) - self._precision
        noise = max(self.projection.noise, 1e-6) ** 2
        return np.maximum(noise * np.diagonal(missing @ self.filter @ missing), 0).astype(np.float32)

    @cached_property
    def _maps(self) -> tuple[Floats, Floats]:
        """Matrices A and B (k, k): for p = x W V, noisy latents are p A and the explained sum of squares is p B p'."""
        if not self.filled:
            return self.covariance, self.covariance
        identity, gram = np.eye(self.projection.n_latent), self._precision
        latents = identity + self.filter @ (identity - gram)
        explained = self.filter @ (2 * identity - gram @ self.filter)
        return latents.astype(np.float32), explained.astype(np.float32)

    @property
    def readout(self) -> Floats:
        """Matrix (d, k) that maps standardised genes to noisy latents."""
        return self._weighted @ self._maps[0]

    def read(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Return noisy latents y (n, k) of a chunk of the observed genes, and the noise variance (n,) of every cell.

        The variance is the weighted residual sum of squares per degree of freedom. Sums are in double precision, so
        that the kind of matrix and the size of chunks hardly ever change a bit of the latents.
        """
        x = self.standardizer(chunk, np.float64)
        products = x @ self._weighted
        y, explained = products @ self._maps[0], np.einsum("nk,nk->n", products, products @ self._maps[1])
        energy = np.maximum(x.squared_norms(self.weights) - explained, 0)
        return np.asarray(y, dtype=np.float32), energy / self.degrees_of_freedom

    def latents(self, chunk: Chunk, rows: slice | None = None, *, log_depth: Floats | None = None) -> Latents:
        """Return the latents of a chunk. Cells without any expression are at the origin.

        `log_depth` (n,) is recovered from the values unless it is given. `rows` is not used: a loop over chunks passes
        it to every function.
        """
        y, residual = self.read(chunk)
        empty = (np.asarray(abs(chunk).sum(1)).ravel() == 0) & self.zero_is_empty
        y[empty] = 0
        depth = recover(chunk).log_depth if log_depth is None else log_depth
        with np.errstate(over="ignore"):  # Values that are not log-normalised may be large.
            sums = np.asarray(np.expm1(chunk).sum(0), dtype=np.float64).ravel()
        return Latents(y, residual.astype(np.float32), empty, depth, gene_sums=sums)

    def energy(self, latents: Latents) -> Floats:
        """Return the squared norms (n,) of the standardised cells."""
        return latents.residual * self.degrees_of_freedom + np.square(latents.y).sum(1)

    def honest(self, latents: Latents, own: Mask) -> Floats:
        """Return latents (n, k), after correcting the reference's `own` cells by :func:`without_self`.

        The latents of an own cell are then as if the loadings had been computed without this cell.
        """
        if not self.complete:
            return np.asarray(latents.y)
        energy = self.energy(latents)
        honest = without_self(latents.y, latents.y, energy, energy, self.projection.influence)
        return np.where(own[:, None], honest, latents.y)

    def honest_part(self, part: Latents, expression: Chunk, whole: Chunk, own: Mask) -> Latents:
        """Correct the latents of parts of cells, as :meth:`honest` does for whole cells.

        `expression` (n, d) belongs to the parts, and `whole` (n, d) to the whole cells.
        """
        if not self.complete or not own.any():
            return part
        x, cells = (self.standardizer(sparse.csr_array(chunk)) for chunk in (expression, whole))
        own_y, energy = cells @ self.loadings, cells.squared_norms()
        y = without_self(part.y, own_y, x.inner(cells), energy, self.projection.influence)
        return replace(part, y=np.where((own & ~part.empty)[:, None], y, part.y))

    def noise(self, latents: Latents, options: Options) -> float:
        """Return the standard deviation of the noise of a standardised gene in the data set."""
        if not isinstance(options.noise, str):
            return float(options.noise)
        kind, measured = options.likelihood, latents.residual[~latents.empty]
        # The scale of Student-t noise is smaller than its standard deviation.
        factor = np.sqrt(max(kind.df - 2, 0.5) / kind.df) if isinstance(kind, StudentT) else 1.0
        if len(self.loadings) < 2 * self.projection.n_latent:
            # With so few genes, the residual is not reliable. Use the noise of the reference instead.
            return float(factor * self.projection.noise)
        return float(factor * np.sqrt(measured.mean())) if len(measured) else 0.0
