"""From expression to latents: standardised genes, the loadings of the reference, and a correction for its own cells.

A standardised chunk is stored as ``deviation + constant``. The constant row is the standardised value of zeros, and
only the stored entries of a sparse chunk deviate from it. Products and norms stay sparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from dice._types import Chunk, Codes, Floats

#: Smallest distance of an eigenvalue from those beneath, as a share of the largest one.
CLOSEST = 1e-3


@dataclass(frozen=True)
class Standardized:
    """Standardised cells x (n, d) of a chunk, as the sum of a sparse deviation (n, d) and a constant row (d,)."""

    deviation: Chunk
    constant: Floats | None

    def __len__(self) -> int:
        return int(self.deviation.shape[0])

    def __matmul__(self, matrix: Floats) -> Floats:
        """x @ matrix, dense (n, m)."""
        product = np.asarray(self.deviation @ matrix)
        return product if self.constant is None else product + self.constant @ matrix

    def squared_norms(self, weights: Floats | None = None) -> Floats:
        """Sum over genes of weights * x^2 for every cell (n,)."""
        if self.constant is None:
            squares: Floats = np.asarray(self.deviation) ** 2
            return squares.sum(1) if weights is None else squares @ weights
        # For stored entries (v + c)^2 - c^2 = v (v + 2 c); all others contribute c^2.
        w = np.ones_like(self.constant) if weights is None else weights
        v = self.deviation.astype(np.float64)
        v.data *= (v.data + 2 * self.constant[v.indices]) * w[v.indices]
        return np.asarray(v.sum(1)).ravel() + (w * self.constant**2).sum()

    def inner(self, other: Standardized) -> Floats:
        """Inner products (n,) with other cells, row by row; both sparse."""
        assert self.constant is not None
        shared = np.asarray(self.deviation.multiply(other.deviation).sum(1)).ravel()
        return shared + (self.deviation + other.deviation) @ self.constant + (self.constant**2).sum()

    def dense(self) -> Floats:
        """The chunk as a dense array (n, d)."""
        if self.constant is None:
            return np.asarray(self.deviation)
        return self.deviation.toarray() + self.constant


@dataclass(frozen=True)
class Standardizer:
    """x -> clip((x - mean) / scale, -cap, cap) - center, gene by gene."""

    mean: Floats
    scale: Floats
    center: Floats
    cap: float

    def __call__(self, chunk: Chunk) -> Standardized:
        if sparse.issparse(chunk):
            return self._sparse(chunk.astype(np.float32))
        values = (np.asarray(chunk, dtype=np.float32) - self.mean) / self.scale
        np.clip(values, -self.cap, self.cap, out=values)
        values -= self.center
        return Standardized(values, None)

    def _sparse(self, chunk: sparse.csr_array) -> Standardized:
        zero = np.clip(-self.mean / self.scale, -self.cap, self.cap)
        genes = chunk.indices
        values = (chunk.data - self.mean[genes]) / self.scale[genes]
        np.clip(values, -self.cap, self.cap, out=values)
        deviation = sparse.csr_array((values - zero[genes], genes, chunk.indptr), shape=chunk.shape)
        return Standardized(deviation, zero - self.center)

    def take(self, genes: Codes) -> Standardizer:
        """The same for a subset or another order of the genes."""
        return Standardizer(self.mean[genes], self.scale[genes], self.center[genes], self.cap)


@dataclass(frozen=True)
class Projection:
    """Standardisation and loadings of the reference.

    ``loadings`` (d, k) are orthonormal. ``gene_noise`` (d,) is the variance of every standardised gene that they leave
    unexplained, and ``noise`` the square root of its mean per degree of freedom. ``bulk`` is the mean of the
    eigenvalues of the Gram matrix beyond the k-th, each weighted by itself.
    """

    mean: Floats
    scale: Floats
    center: Floats
    cap: float
    loadings: Floats
    singular_values: Floats
    gene_noise: Floats
    noise: float
    bulk: float = 0.0

    @property
    def n_latent(self) -> int:
        return int(self.loadings.shape[1])

    @property
    def standardizer(self) -> Standardizer:
        return Standardizer(self.mean, self.scale, self.center, self.cap)

    def project(self, chunk: Chunk) -> Floats:
        """Latents (n, k) of a chunk that holds all genes in order: the plain PCA projection."""
        return self.standardizer(chunk) @ self.loadings

    @cached_property
    def influence(self) -> Floats:
        """1 / (s_l^2 - b) for every latent (k,): how far a unit of a cell's residual turns the loadings."""
        eigenvalues = np.square(self.singular_values[: self.n_latent], dtype=np.float64)
        return 1 / np.maximum(eigenvalues - self.bulk, CLOSEST * eigenvalues[0])


def is_orthonormal(columns: np.ndarray) -> bool:
    """Whether the columns of a matrix, or of each of a stack of them, are unit vectors at right angles."""
    if np.abs(columns).max(initial=0) > 1.01:
        return False
    gram = columns.swapaxes(-1, -2) @ columns
    return bool(np.allclose(gram, np.eye(gram.shape[-1]), atol=1e-3))


def without_self(y: Floats, own: Floats, product: Floats, energy: Floats, weight: Floats) -> Floats:
    """Latents (n, k) of reference cells, or of parts of them, as if the loadings had been computed without them.

    PCA fits the noise of its own cells. To first order the loadings are v_l = v_l(-i) + r_i y_il(-i) / (s_l^2 - b),
    where v_l(-i) are the loadings without cell i, r_i is the residual of the cell under them, s_l are the singular
    values and b is the bulk of the eigenvalues beneath. The projection of a cell, or of a part of its counts, then
    contains its own noise a second time, and two parts of a cell seem to agree: on 4,000 cells of bmmc their covariance
    in latents 36 to 50 is 15.6 for cells of the reference and 1.7 for others. The projection of a query has no such
    error. This correction makes the two comparable.

    Parameters
    ----------
    y
        Latents of the parts by the loadings.
    own
        Latents of the whole cells, which the loadings were computed from.
    product
        Inner products (n,) of the standardised part and the standardised whole cell over all genes.
    energy
        Squared norms (n,) of the standardised whole cells.
    weight
        :attr:`Projection.influence`.
    """
    residual = np.maximum(energy - np.square(own).sum(1), 0)[:, None]
    honest = own / (1 + residual * weight)
    shared = (product - np.einsum("nk,nk->n", y, own))[:, None]
    return (y - shared * weight * honest).astype(np.float32)
