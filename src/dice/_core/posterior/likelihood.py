"""What a query's expression says about its latents, before the prior speaks.

Every Gaussian likelihood N(x; V U, s_i^2 diag(psi)) over any subset of the genes reduces to a point y_i and a
covariance s_i^2 C in the latent space: A = V' W V, C = A^-1, y = C V' W x with W = diag(1 / psi).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dice._core.projection import Projection
from dice._core.standardize import Chunk, Floats, Standardizer

#: Gene noise below this share of the mean would give a single gene all the say.
MIN_GENE_NOISE = 0.05


@dataclass(frozen=True)
class GaussianLikelihood:
    """Gaussian likelihood over the observed genes, with the same relative noise per gene for all cells.

    Unobserved genes are left out, never taken as zero: their rows of V and W are absent.
    """

    standardizer: Standardizer
    #: Loadings (d, k) and noise weights (d,) of the observed genes.
    loadings: Floats
    weights: Floats | None
    #: Whether all of the prior's genes are observed.
    complete: bool

    @classmethod
    def of(cls, projection: Projection, genes: NDArray[np.intp], *, per_gene: bool = False) -> GaussianLikelihood:
        """The likelihood of a query that holds the prior's `genes` (positions, in its order)."""
        noise = projection.gene_noise / max(projection.gene_noise.mean(), 1e-12)
        weights = 1 / np.maximum(noise[genes], MIN_GENE_NOISE) if per_gene else None
        return cls(
            projection.standardizer.take(genes),
            projection.loadings[genes],
            weights,
            len(genes) == len(projection.loadings),
        )

    @property
    def isotropic(self) -> bool:
        """Whether C is the identity, so that the posterior needs one evaluation."""
        return self.complete and self.weights is None

    @property
    def n_latent(self) -> int:
        return int(self.loadings.shape[1])

    @property
    def degrees_of_freedom(self) -> int:
        """Observed genes beyond those that the latents explain, at least 1."""
        return max(len(self.loadings) - self.n_latent, 1)

    @cached_property
    def covariance(self) -> Floats:
        """C (k, k): covariance of y around U for noise of level 1."""
        if self.isotropic:
            return np.eye(self.n_latent, dtype=np.float32)
        loadings = self.loadings.astype(np.float64)
        weighted = loadings if self.weights is None else loadings * self.weights[:, None]
        precision = loadings.T @ weighted
        # Directions that no observed gene loads on are bounded, not infinite.
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
        """Latent points y (n, k) of a chunk of the observed genes, and each cell's noise variance (n,).

        The variance is the weighted residual energy per degree of freedom.
        """
        x = self.standardizer(chunk)
        y = np.asarray(x @ self._readout, dtype=np.float32)
        explained = np.einsum("nk,nk->n", y, y @ np.linalg.inv(self.covariance))
        energy = np.maximum(x.squared_norms(self.weights) - explained, 0)
        return y, energy / self.degrees_of_freedom


def shrink_noise(variances: Floats, n_genes: int) -> Floats:
    """Per-cell noise variances, shrunk towards their mean by what chance alone would spread them."""
    mean = variances.mean()
    chance = 2 * mean**2 / max(n_genes, 1)
    observed = variances.var()
    keep = max(0.0, 1 - chance / observed) if observed > 0 else 0.0
    return mean + keep * (variances - mean)
