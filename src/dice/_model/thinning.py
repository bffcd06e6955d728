"""Independent measurements of the same cells: counts are split at random into parts (binomial thinning).

Counts are Poisson given the cell, so that the parts are independent given the cell. Only nonzero entries are drawn.

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

from dice._model.counts import Recovered, normalised
from dice._model.leave_one_out import influence, without_self
from dice._model.projection import Projection
from dice._model.standardize import Standardized
from dice._types import Floats

#: Assumed target sum of the normalisation: counts per ten thousand. It gives the number of counts in missing genes, so
#: that a part can be normalised by its own total.
TARGET_SUM = 1e4
#: Purposes of random numbers, in the upper word of a cell's key.
HALVES, ALIKE = 1 << 64, 2 << 64


@dataclass(frozen=True)
class Share:
    """A share of the counts (n, d) of cells, as CSR, and the factor (n,) that normalises it by its own total."""

    counts: sparse.csr_array
    factor: NDArray[np.float64]

    @property
    def log_depth(self) -> NDArray[np.float32]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return (-np.log(self.factor)).astype(np.float32)

    def joined(self, other: Share) -> Share:
        """Both parts of the same cells together; they have the same entries."""
        counts = self.counts.copy()
        counts.data = self.counts.data + other.counts.data
        # Factors are inverse to totals, and totals add up.
        return Share(counts, 1 / (1 / self.factor + 1 / other.factor))


def split(cells: Recovered, shares: Floats, rng: np.random.Generator, *, target_sum: float = TARGET_SUM) -> list[Share]:
    """Disjoint random parts of every cell's counts.

    Parameters
    ----------
    cells
        Counts of cells.
    shares
        Share (n, parts) of the counts that goes to each part; a row adds up to 1 at most.
    rng
        Source of randomness.
    target_sum
        Target sum of the normalisation. Counts of missing genes are split as well.
    """
    matrix, n = cells.counts, cells.counts.shape[0]
    left, cell = matrix.data.astype(np.int64), np.repeat(np.arange(n), np.diff(matrix.indptr))
    inside = np.bincount(cell, weights=left, minlength=n)
    total = np.maximum(np.round(target_sum / np.nan_to_num(cells.factor, nan=np.inf)), inside)
    outside, rest = (total - inside).astype(np.int64), np.ones(n)
    parts = []
    for share in shares.T:
        # Relative to the counts that earlier parts have left.
        chance = np.minimum(share / np.maximum(rest, 1e-12), 1.0)
        taken, taken_outside = binomial(left, chance[cell], rng), rng.binomial(outside, chance)
        left, outside, rest = left - taken, outside - taken_outside, rest - share
        own = np.bincount(cell, weights=taken, minlength=n) + taken_outside
        parts.append(_share(cells, taken, own, total))
    return parts


def halves(
    cells: Recovered, seeds: NDArray[np.int64], n_splits: int, *, target_sum: float = TARGET_SUM
) -> list[tuple[Share, Share]]:
    """Two halves of every cell's counts, `n_splits` times, each cell by random numbers of its own seed.

    The halves of a cell depend on its counts and its seed only, not on chunks or the order of cells.
    """
    matrix, n = cells.counts, cells.counts.shape[0]
    counts, bounds = matrix.data.astype(np.int64), matrix.indptr
    inside = np.add.reduceat(np.append(counts, 0), bounds[:-1]) * (np.diff(bounds) > 0) if n else np.zeros(0)
    # Cells that are not counts have no total.
    factor = np.where(cells.whole, np.nan_to_num(cells.factor, nan=np.inf), np.inf)
    total = np.maximum(np.round(target_sum / factor), inside).astype(np.int64)
    first, own = np.zeros((n_splits, len(counts)), np.int64), np.zeros((n_splits, n), np.int64)
    for i in range(n):
        rng = np.random.Generator(np.random.Philox(key=int(seeds[i]) % 2**64 + HALVES))
        entries = slice(bounds[i], bounds[i + 1])
        first[:, entries] = rng.binomial(counts[entries], 0.5, (n_splits, bounds[i + 1] - bounds[i]))
        own[:, i] = first[:, entries].sum(1) + rng.binomial(total[i] - inside[i], 0.5, n_splits)
    return [
        (_share(cells, taken, n_own, total), _share(cells, counts - taken, total - n_own, total))
        for taken, n_own in zip(first, own, strict=True)
    ]


def alike(cells: Recovered, profile: Floats, seeds: NDArray[np.int64]) -> sparse.csr_array:
    """Counts (n, d) of cells that differ in depth only, drawn from one `profile` (d,)."""
    cumulative, n_genes = np.cumsum(profile), len(profile)
    genes, counts, lengths = [], [], []
    for seed, total in zip(seeds, np.asarray(cells.counts.sum(1)).ravel().astype(np.int64), strict=True):
        rng = np.random.Generator(np.random.Philox(key=int(seed) % 2**64 + ALIKE))
        if total > n_genes:
            drawn = rng.multinomial(total, profile)
            found = np.flatnonzero(drawn)
            drawn = drawn[found]
        else:  # One gene for every count: 20 times faster for shallow cells.
            places = np.minimum(np.searchsorted(cumulative, rng.random(total)), n_genes - 1)
            found, drawn = np.unique(places, return_counts=True)
        genes.append(found)
        counts.append(drawn)
        lengths.append(len(found))
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.intp)])
    data, indices = (np.concatenate([np.empty(0, np.intp), *parts]) for parts in (counts, genes))
    return sparse.csr_array((data.astype(np.float32), indices, bounds), shape=cells.counts.shape)


def _share(cells: Recovered, taken: NDArray[np.int64], own: NDArray[np.int64], total: NDArray[np.int64]) -> Share:
    """The part `taken` (entries) of the counts, `own` (n,) of the `total` (n,) of every cell."""
    whole = cells.counts
    counts = sparse.csr_array((taken.astype(np.float32), whole.indices, whole.indptr), shape=whole.shape)
    return Share(counts, cells.factor * total / np.maximum(own, 1))


def binomial(counts: NDArray[np.int64], share: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Binomial(counts, share), entry by entry (m,).

    Most counts of single cells are one, which needs a single comparison: 10 ms instead of numpy's 27 ms for the 0.9
    million entries of bmmc.
    """
    kept = (rng.random(len(counts), dtype=np.float32) < share).astype(np.int64)
    many = np.flatnonzero(counts != 1)
    kept[many] = rng.binomial(counts[many], share[many])
    return kept


#: Range of the input's share of a cell's counts, log-uniform. The target is the rest: no counts are wasted, whole cells
#: are hardly deeper than the deepest input, and the depth of the target varies enough to be learned.
SMALLEST_SHARE, LARGEST_SHARE = 0.05, 0.8
#: Thinned copies of every cell, up to this number of rows. Held-out error after 300 steps with 2, 4, 8 copies of 4,000
#: cells: bmmc .209, .205, .203; TEA-seq .300, .294, .292.
MAX_COPIES, ROWS = 8, 32_000
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
        self.weight = influence(projection)
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


def make_rows(reader: ReferenceReader, rng: np.random.Generator, *, target_sum: float) -> Tensor:
    """Rows (copies, n, 4 k + 3) of thinned copies of all cells of a reader."""
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
