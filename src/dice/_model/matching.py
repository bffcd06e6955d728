"""Cells of a reference made like those of a query: thinned to its depth, and read by loadings that do not know them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._model.counts import Recovered, normalised, recover
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.projection import Projection
from dice._model.thinning import TARGET_SUM
from dice._types import Chunk, Codes, Floats, Mask

#: Cells that would keep more than this share of their counts keep all of them.
WHOLE_SHARE = 0.9


@dataclass(frozen=True)
class LikeQuery:
    """Reads reference cells as if they had been measured like the query; each by random numbers of its own."""

    likelihood: GaussianLikelihood
    projection: Projection
    #: Log depths of the query's cells, in ascending order; none where depth does not matter.
    depths: Floats
    #: Cell seeds (n,) of the reference, and cells (n,) that the loadings were computed from.
    seeds: NDArray[np.int64]
    own: Mask
    #: Share of its counts that every cell keeps, whatever the depths say.
    share: float | None = None

    def expression(self, chunk: Chunk, rows: slice | Codes) -> Chunk:
        """Log-normalised expression of a chunk, as shallow as the query's."""
        if not len(self.depths) and self.share is None:
            return chunk
        cells = recover(chunk)
        shallow = thinned(cells, self._shares(cells, self.seeds[rows]), self.seeds[rows])
        return _with_strays(shallow, chunk, cells.whole)

    def latents(self, chunk: Chunk, rows: slice) -> Latents:
        """The same as latents."""
        shallow = self.expression(chunk, rows)
        latents = self.likelihood.latents(shallow)
        return self.likelihood.honest_part(latents, shallow, chunk, self.own[rows], self.projection)

    def _shares(self, cells: Recovered, seeds: NDArray[np.int64]) -> Floats:
        """Share (n,) of its counts that every cell keeps to be as deep as a random cell of the query."""
        if self.share is not None:
            return np.full(len(seeds), self.share)
        ranks = (seeds.astype(np.uint64) % np.uint64(len(self.depths))).astype(np.intp)
        with np.errstate(invalid="ignore"):
            return np.exp(np.minimum(np.nan_to_num(self.depths[ranks] - cells.log_depth), 0.0))


def thinned(cells: Recovered, shares: Floats, seeds: NDArray[np.int64]) -> sparse.csr_array:
    """Log-normalised expression (n, d) of shares (n,) of the counts of cells, each drawn by its own seed."""
    counts, factor = cells.counts.copy(), cells.factor.copy()
    for i in np.flatnonzero((shares < WHOLE_SHARE) & cells.whole & ~np.isnan(cells.factor)):
        entries = slice(counts.indptr[i], counts.indptr[i + 1])
        rng = np.random.Generator(np.random.Philox(key=int(seeds[i]) % 2**64))
        before = counts.data[entries].sum()
        outside = max(round(TARGET_SUM / factor[i] - before), 0)
        counts.data[entries] = rng.binomial(counts.data[entries].astype(np.int64), shares[i])
        kept = counts.data[entries].sum() + rng.binomial(outside, shares[i])
        factor[i] *= (before + outside) / max(kept, 1)
    return normalised(counts, np.nan_to_num(factor))


def _with_strays(shallow: sparse.csr_array, chunk: Chunk, whole: Mask) -> sparse.csr_array:
    """Leave cells without counts unchanged."""
    if whole.all():
        return shallow
    lines = sparse.vstack([shallow, sparse.csr_array(chunk)], format="csr")
    return lines[np.where(whole, np.arange(len(whole)), np.arange(len(whole)) + len(whole))]
