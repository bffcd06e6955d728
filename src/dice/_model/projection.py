"""From expression to latents: standardisation of genes, loadings, and a correction for the reference's own cells.

A standardised chunk is stored as ``deviation + constant``. The constant row holds the standardised zeros. Only the
stored entries of a sparse chunk deviate from it, so the deviation is sparse, and so are products and norms.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from dice._types import Chunk, Codes, Floats

#: Smallest distance between an eigenvalue and the bulk of smaller ones, as a share of the largest eigenvalue.
CLOSEST = 1e-3


@dataclass(frozen=True)
class Standardized:
    """Standardised cells x (n, d) of a chunk, as the sum of a sparse deviation (n, d) and a constant row (d,)."""

    deviation: Chunk
    constant: Floats | None

    def __matmul__(self, matrix: Floats) -> Floats:
        """Return x @ matrix as a dense array (n, m)."""
        product = np.asarray(self.deviation @ matrix)
        return product if self.constant is None else product + self.constant @ matrix

    def squared_norms(self, weights: Floats | None = None) -> Floats:
        """Return the sum over genes of weights * x^2 for every cell (n,)."""
        if self.constant is None:
            squares: Floats = np.asarray(self.deviation) ** 2
            return squares.sum(1) if weights is None else squares @ weights
        # Every entry adds c^2, and a stored entry v also adds (v + c)^2 - c^2 = v (v + 2 c).
        w = np.ones_like(self.constant) if weights is None else weights
        v = self.deviation.astype(np.float64)
        v.data *= (v.data + 2 * self.constant[v.indices]) * w[v.indices]
        return np.asarray(v.sum(1)).ravel() + (w * self.constant**2).sum()

    def inner(self, other: Self) -> Floats:
        """Return the inner products (n,) with `other` cells, row by row. Both chunks must be sparse."""
        assert self.constant is not None
        shared = np.asarray(self.deviation.multiply(other.deviation).sum(1)).ravel()
        return shared + (self.deviation + other.deviation) @ self.constant + (self.constant**2).sum()

    def dense(self) -> Floats:
        """Return the chunk as a dense array (n, d)."""
        if self.constant is None:
            return np.asarray(self.deviation)
        return self.deviation.toarray() + self.constant


@dataclass(frozen=True)
class Standardizer:
    """Standardisation of every gene: x -> clip((x - mean) / scale, -cap, cap) - center."""

    mean: Floats
    scale: Floats
    center: Floats
    cap: float

    def __call__(self, chunk: Chunk, dtype: DTypeLike = np.float32) -> Standardized:
        """Return standardised cells, computed in `dtype`."""
        if sparse.issparse(chunk):
            return self._sparse(chunk.astype(dtype))
        values = np.subtract(chunk, self.mean, dtype=dtype)
        values /= self.scale
        np.clip(values, -self.cap, self.cap, out=values)
        values -= self.center
        return Standardized(values, None)

    def _sparse(self, chunk: sparse.csr_array) -> Standardized:
        zero = np.clip(-self.mean.astype(chunk.dtype) / self.scale, -self.cap, self.cap)
        genes = chunk.indices
        values = (chunk.data - self.mean[genes]) / self.scale[genes]
        np.clip(values, -self.cap, self.cap, out=values)
        deviation = sparse.csr_array((values - zero[genes], genes, chunk.indptr), shape=chunk.shape)
        return Standardized(deviation, zero - self.center)

    def take(self, genes: Codes) -> Self:
        """Return the standardiser of a subset or another order of the genes."""
        return replace(self, mean=self.mean[genes], scale=self.scale[genes], center=self.center[genes])


@dataclass(frozen=True)
class Projection:
    """Standardisation and loadings of the reference.

    ``loadings`` (d, k) are orthonormal. ``gene_noise`` (d,) is the variance of every standardised gene that the
    loadings do not explain, and ``noise`` is the square root of its mean per degree of freedom. ``bulk`` is the mean of
    the eigenvalues of the Gram matrix beyond the k-th, each weighted by itself.
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
        """Return the PCA projection (n, k) of a chunk, which must hold all genes in the order of the loadings."""
        return self.standardizer(chunk) @ self.loadings

    @cached_property
    def influence(self) -> Floats:
        """Effect of one unit of a cell's residual on the loadings of every latent (k,): 1 / (s_l^2 - b)."""
        eigenvalues = np.square(self.singular_values[: self.n_latent], dtype=np.float64)
        return 1 / np.maximum(eigenvalues - self.bulk, CLOSEST * eigenvalues[0])


def is_orthonormal(columns: np.ndarray) -> bool:
    """Return whether the columns of a matrix, or of every matrix in a stack, are orthonormal."""
    if np.abs(columns).max(initial=0) > 1.01:
        return False
    gram = columns.swapaxes(-1, -2) @ columns
    return bool(np.allclose(gram, np.eye(gram.shape[-1]), atol=1e-3))


def without_self(y: Floats, own: Floats, product: Floats, energy: Floats, weight: Floats) -> Floats:
    """Correct the latents of reference cells, or of parts of them, as if the loadings had been computed without them.

    PCA fits the noise of its own cells. To first order the loadings are v_l = v_l(-i) + r_i y_il(-i) / (s_l^2 - b),
    where v_l(-i) are the loadings without cell i. Under these loadings, the cell has the latents y_i(-i) and the
    residual r_i. The singular values are s_l, and b is the bulk of the eigenvalues beneath. The projection of a cell,
    or of a part of its counts, then contains the cell's noise a second time, and two parts of a cell seem to agree. On
    4,000 cells of bmmc, the covariance of two parts in latents 36 to 50 is 15.6 for cells of the reference and 1.7 for
    other cells. The projection of a query has no such error. This correction makes reference and query comparable.

    Parameters
    ----------
    y
        Latents (n, k) of the cells or parts.
    own
        Latents (n, k) of the whole cells that the loadings were computed from.
    product
        Inner products (n,) of the standardised part and the standardised whole cell over all genes.
    energy
        Squared norms (n,) of the standardised whole cells.
    weight
        Influence (k,) of a cell on the loadings, :attr:`Projection.influence`.

    Returns
    -------
    The corrected latents (n, k).
    """
    residual = np.maximum(energy - np.square(own).sum(1), 0)[:, None]
    honest = own / (1 + residual * weight)
    shared = (product - np.einsum("nk,nk->n", y, own))[:, None]
    return (y - shared * weight * honest).astype(np.float32)
