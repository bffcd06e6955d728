"""Thinned copies of the reference as rows to learn the measurement from, and its trainer.

Every row is one cell: the noisy latents of a random share of its counts, the latents of all the rest, which the network
predicts, those of the two halves of the rest, which tell the variance, and the log depths of all of them. Rows are
plain tensors, so that the trainer of priors drives this network.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from dice._core.measurement.counts import Recovered, normalised
from dice._core.measurement.leave_one_out import influence, without_self
from dice._core.measurement.network import MeasurementNetwork
from dice._core.measurement.thinning import Share, split
from dice._core.prior.denoiser import TrainingConfig
from dice._core.prior.training import Trainer
from dice._core.projection import Projection
from dice._core.standardize import Standardized
from dice._types import Floats

#: Range of the input's share of a cell's counts, log-uniform. The target is all the rest: few counts are wasted, whole
#: cells are hardly beyond the deepest input, and the depth of the target varies enough to be a coordinate.
SMALLEST, LARGEST = 0.05, 0.8
#: Thinned copies of every cell, as far as so many rows. Held-out error after 300 steps with 2, 4, 8 copies of 4,000
#: cells: bmmc .209, .205, .203; TEA-seq .300, .294, .292.
MAX_COPIES, ROWS = 8, 32_000
#: Cells that are copied at most.
MAX_MEASURED = 16_000
#: Held-out error with at most 300, 600, 1,200 steps: bmmc .203, .197, .196; TEA-seq .292, .289, .288.
TRAINING = TrainingConfig(
    max_steps=600,
    batch_size=512,
    learning_rate=3e-3,
    weight_decay=1e-2,
    warmup=30,
    ema_decay=0.99,
    evaluate_every=50,
    patience=4,
)


class ReferenceReader:
    """Latents of reference cells and of parts of their counts, by loadings that do not know these cells."""

    def __init__(self, projection: Projection, cells: Recovered) -> None:
        self.projection, self.cells = projection, cells
        self.weight = influence(projection.singular_values, projection.n_latent)
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


class HeldOutRows:
    """Error of the mean on held-out cells relative to that of the linear filter; the same rows at every evaluation."""

    def __init__(self, rows: Tensor, network: MeasurementNetwork) -> None:
        self.rows = rows
        with torch.no_grad():
            self.linear = max(float(network.error(rows)), 1e-12)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the loss depends on, besides the network."""
        return (self.rows,)

    @torch.no_grad()
    def loss(self, network: MeasurementNetwork) -> float:
        return float(network.error(self.rows)) / self.linear


def make_trainer(rows: Tensor, held_out: Tensor, *, typical: float, seed: int, max_steps: int | None = None) -> Trainer:
    """A trainer of a network that starts at the linear filter of `rows` (m, 4 k + 3) and asks for one log depth."""
    k = (rows.shape[1] - 3) // 4
    network = MeasurementNetwork.empty({"n_latent": k, "width": 128, "depth": 2})
    network.initialize(torch.Generator().manual_seed(seed))
    network.fit_filter(rows.cpu(), held_out.cpu(), typical)
    network.to(rows.device)
    config = TRAINING if max_steps is None else TrainingConfig(**{**vars(TRAINING), "max_steps": max_steps})
    judge = HeldOutRows(held_out, network) if len(held_out) else None
    trainer = Trainer(network, rows, judge, config, seed=seed)
    trainer.best_loss = 1.0 if judge else trainer.best_loss  # The linear filter is a candidate, too.
    return trainer
