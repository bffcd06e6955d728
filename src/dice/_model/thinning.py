"""Cells of a reference that are thinned: copies that a denoiser learns from, and cells as shallow as a query's.

A denoiser learns from rows. A row is a thinned copy of one cell: the noisy latents of a random share of its counts, the
latents of the rest, which the network predicts, the latents of two halves of the rest, which give the variance, and the
log depths of these parts. Without counts a row is the latents of a cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from dice._model.counts import TARGET_SUM, Recovered, Share, normalised, recover, split
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.projection import Projection, Standardized, without_self
from dice._types import Chunk, Codes, Floats, Mask

#: Range of the input's share of a cell's counts, log-uniform. The target is the rest: no counts are wasted, whole cells
#: are hardly deeper than the deepest input, and the depth of the target varies enough to be learned.
SMALLEST_SHARE, LARGEST_SHARE = 0.05, 0.8
#: Thinned copies of every cell, up to this number of rows. Held-out error after 300 steps with 2, 4, 8 copies of 4,000
#: cells: bmmc .209, .205, .203; TEA-seq .300, .294, .292. Against the exact posterior of twelve profiles, 16 copies
#: leave 97 to 99 % of the error that 8 leave (four seeds).
MAX_COPIES, ROWS = 16, 64_000
#: Largest number of cells that are copied.
MAX_MEASURED = 16_000


class Rows:
    """Rows (n, 4 k + 3) of thinned copies, or latents (n, k) without counts, by the names of their parts."""

    def __init__(self, values: Tensor, n_latent: int) -> None:
        self.values, self.n_latent = values, n_latent
        self.noisy = values[:, :n_latent]
        if values.shape[1] == n_latent:
            self.target = self.first = self.second = values
            self.depths: Tensor | None = None
            self.half_depths: Tensor | None = None
            return
        k = n_latent
        self.target, self.first, self.second = values[:, k : 4 * k].split(k, dim=1)
        #: Log depths (n, 2) of input and target, and of input and halves.
        self.depths, self.half_depths = values[:, 4 * k : 4 * k + 2], values[:, [4 * k, 4 * k + 2]]

    def __len__(self) -> int:
        return len(self.values)

    def every_second(self) -> Rows:
        """Half of the rows."""
        return Rows(self.values[::2], self.n_latent)

    def clean_scale(self) -> float:
        """Root mean variance of the clean latents: the covariance of two halves is free of the noise of counts."""
        first, second = self.first - self.first.mean(0), self.second - self.second.mean(0)
        return float((first * second).mean().clamp_min(1e-12).sqrt())

    def scaled(self, scale: float) -> Tensor:
        """The rows with latents divided by `scale`; depths stay what they are."""
        values = self.values.clone()
        values[:, : values.shape[1] if self.depths is None else 4 * self.n_latent] /= scale
        return values


class ReferenceReader:
    """Latents of reference cells and of parts of their counts, as if the loadings had been computed without them."""

    def __init__(self, projection: Projection, cells: Recovered) -> None:
        self.projection, self.cells = projection, cells
        self.weight = projection.influence
        self.whole = self._standardized(cells.counts, cells.factor)
        self.own = self.whole @ projection.loadings
        self.energy = self.whole.squared_norms()

    def _standardized(self, counts: sparse.csr_array, factor: Floats) -> Standardized:
        return self.projection.standardizer(normalised(counts, np.nan_to_num(factor)))

    def latents(self, part: Share | None = None) -> Floats:
        """Latents (n, k) of a part of every cell, or of the whole cells."""
        if part is None:
            return without_self(self.own, self.own, self.energy, self.energy, self.weight)
        x = self._standardized(part.counts, part.factor)
        return without_self(x @ self.projection.loadings, self.own, x.inner(self.whole), self.energy, self.weight)


def make_rows(projection: Projection, cells: Recovered, rng: np.random.Generator, *, target_sum: float) -> Tensor:
    """Rows (copies, n, 4 k + 3) of thinned copies of cells of the reference."""
    reader = ReferenceReader(projection, cells)
    n_copies = int(np.clip(-(-ROWS // max(len(reader.own), 1)), 2, MAX_COPIES))
    return torch.stack([_copy(reader, rng, target_sum) for _ in range(n_copies)])


def _copy(reader: ReferenceReader, rng: np.random.Generator, target_sum: float) -> Tensor:
    share = np.exp(rng.uniform(np.log(SMALLEST_SHARE), np.log(LARGEST_SHARE), len(reader.own)))
    shares = np.column_stack([share, (1 - share) / 2, (1 - share) / 2])
    part, first, second = split(reader.cells, shares, rng, target_sum=target_sum)
    rest = first.joined(second)
    latents = [reader.latents(each) for each in (part, rest, first, second)]
    depths = np.column_stack([part.log_depth, rest.log_depth, rest.log_depth - np.float32(np.log(2))])
    return torch.as_tensor(np.concatenate([*latents, depths], axis=1), dtype=torch.float32)


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
    #: Target sum of the normalisation, which gives the number of counts in missing genes.
    target_sum: float = TARGET_SUM

    def expression(self, chunk: Chunk, rows: slice | Codes) -> Chunk:
        """Log-normalised expression of a chunk, as shallow as the query's."""
        if not len(self.depths) and self.share is None:
            return chunk
        cells = recover(chunk)
        shallow = thinned(cells, self._shares(cells, self.seeds[rows]), self.seeds[rows], self.target_sum)
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


def thinned(
    cells: Recovered, shares: Floats, seeds: NDArray[np.int64], target_sum: float = TARGET_SUM
) -> sparse.csr_array:
    """Log-normalised expression (n, d) of shares (n,) of the counts of cells, each drawn by its own seed."""
    counts, factor = cells.counts.copy(), cells.factor.copy()
    for i in np.flatnonzero((shares < WHOLE_SHARE) & cells.whole & ~np.isnan(cells.factor)):
        entries = slice(counts.indptr[i], counts.indptr[i + 1])
        rng = np.random.Generator(np.random.Philox(key=int(seeds[i]) % 2**64))
        before = counts.data[entries].sum()
        outside = max(round(target_sum / factor[i] - before), 0)
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
