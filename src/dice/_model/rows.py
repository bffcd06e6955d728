"""Thinned copies of the reference as rows that a denoiser learns from.

Every row is one cell: the noisy latents of a random share of its counts, the latents of all the rest, which the network
predicts, those of the two halves of the rest, which tell the variance, and the log depths of all of them. Rows are
plain tensors, so that they are drawn, stored and compared like latents. Without counts a row is the latents of a cell.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from dice._model.counts import Recovered, normalised
from dice._model.leave_one_out import influence, without_self
from dice._model.projection import Projection
from dice._model.standardize import Standardized
from dice._model.thinning import Share, split
from dice._types import Floats

#: Range of the input's share of a cell's counts, log-uniform. The target is all the rest: few counts are wasted, whole
#: cells are hardly beyond the deepest input, and the depth of the target varies enough to be a coordinate.
SMALLEST, LARGEST = 0.05, 0.8
#: Thinned copies of every cell, up to this number of rows. Held-out error after 300 steps with 2, 4, 8 copies of 4,000
#: cells: bmmc .209, .205, .203; TEA-seq .300, .294, .292.
MAX_COPIES, ROWS = 8, 32_000
#: Cells that are copied at most.
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
    """Latents of reference cells and of parts of their counts, by loadings that do not know these cells."""

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
    share = np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST), len(reader.own)))
    shares = np.column_stack([share, (1 - share) / 2, (1 - share) / 2])
    part, first, second = split(reader.cells, shares, rng, target_sum=target_sum)
    rest = first.joined(second)
    latents = [reader.latents(each) for each in (part, rest, first, second)]
    depths = np.column_stack([part.log_depth, rest.log_depth, rest.log_depth - np.float32(np.log(2))])
    return torch.as_tensor(np.concatenate([*latents, depths], axis=1), dtype=torch.float32)
