"""Gene-wise centring, scaling and capping of a chunk of cells, with sparse chunks kept sparse.

A standardised chunk is stored as ``deviation + constant``. The constant row is the standardised value of zeros, and
only the stored entries of a sparse chunk deviate from it. Products and norms stay sparse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from dice._types import Chunk, Codes, Floats


@dataclass(frozen=True)
class Standardized:
    """A chunk x of standardised cells (n, d), as deviation + constant."""

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
