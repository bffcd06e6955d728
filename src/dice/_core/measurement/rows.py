"""Thinned copies of the reference as rows to learn the measurement from, and its trainer.

Every row has three independent measurements of one cell: the noisy latents y (k) with their log depth, and two more
latents (k each) that the network predicts. Rows are plain tensors, so that the trainer of priors drives this network.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from dice._core.measurement.counts import Recovered, normalised
from dice._core.measurement.leave_one_out import influence, without_self
from dice._core.measurement.network import MeasurementNetwork
from dice._core.measurement.thinning import Part, split
from dice._core.prior.denoiser import TrainingConfig
from dice._core.prior.training import Trainer
from dice._core.projection import Projection
from dice._core.standardize import Standardized
from dice._types import Floats

#: Share of a cell's counts in each of the two targets, and the range of the input's share, log-uniform. Targets of a
#: half, a third and a quarter gave NMI .709, .711, .703; inputs of one share only made neighbourhoods less pure
#: (bmmc, cLISI 1.542 in place of 1.474).
TARGET, SMALLEST, LARGEST = 1 / 3, 0.05, 1 / 3
#: Share of the inputs that are as deep as can be: nearest to whole cells.
DEEPEST = 0.2
#: Thinned copies of every cell; more than so many rows teach nothing more, and as many cells suffice.
MAX_COPIES, ROWS = 8, 32_000
MAX_MEASURED = 16_000
#: Held-out error is least after 150 to 500 steps on all sets; a rate of 1e-3 takes longer to the same.
TRAINING = TrainingConfig(
    max_steps=500,
    batch_size=512,
    learning_rate=3e-3,
    weight_decay=1.0,
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

    def latents(self, part: Part | None = None) -> Floats:
        """Latents (n, k) of a part of every cell, or of the whole cells."""
        if part is None:
            return without_self(self.own, self.own, self.energy, self.energy, self.weight)
        x = self._standardized(part.counts, part.factor)
        return without_self(x @ self.projection.loadings, self.own, x.inner(self.whole), self.energy, self.weight)


def make_rows(reader: ReferenceReader, rng: np.random.Generator, *, target_sum: float) -> Tensor:
    """Rows (copies, n, 3 k + 1) of thinned copies of all cells of a reader."""
    n_cells = len(reader.own)
    return torch.stack(
        [_copy(reader, rng, target_sum) for _ in range(int(np.clip(-(-ROWS // max(n_cells, 1)), 2, MAX_COPIES)))]
    )


def _copy(reader: ReferenceReader, rng: np.random.Generator, target_sum: float) -> Tensor:
    n_cells = len(reader.own)
    spread = np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST), n_cells))
    share = np.where(rng.random(n_cells) < DEEPEST, LARGEST, spread)
    shares = np.column_stack([share, np.full_like(share, TARGET), np.full_like(share, TARGET)])
    parts = split(reader.cells, shares, rng, target_sum=target_sum)
    y, first, second = (reader.latents(part) for part in parts)
    return torch.as_tensor(np.concatenate([y, parts[0].log_depth[:, None], first, second], axis=1), dtype=torch.float32)


class HeldOutRows:
    """Error of the mean on held-out cells relative to that of the linear filter; the same rows at every evaluation."""

    def __init__(self, rows: Tensor, network: MeasurementNetwork) -> None:
        self.rows = rows
        with torch.no_grad():
            self.linear = max(float(network.errors(rows)[0]), 1e-12)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the loss depends on, besides the network."""
        return (self.rows,)

    @torch.no_grad()
    def loss(self, network: MeasurementNetwork) -> float:
        return float(network.errors(self.rows)[0]) / self.linear


def make_trainer(rows: Tensor, held_out: Tensor, *, seed: int, max_steps: int | None = None) -> Trainer:
    """A trainer of a network that starts at the linear filter of `rows` (m, 3 k + 1)."""
    k = (rows.shape[1] - 1) // 3
    network = MeasurementNetwork.empty({"n_latent": k, "width": 128, "depth": 2})
    network.initialize(torch.Generator().manual_seed(seed))
    network.fit_filter(rows[:, :k], rows[:, k], rows[:, k + 1 : 2 * k + 1], rows[:, 2 * k + 1 :])
    network.to(rows.device)
    config = TRAINING if max_steps is None else TrainingConfig(**{**vars(TRAINING), "max_steps": max_steps})
    judge = HeldOutRows(held_out, network) if len(held_out) else None
    trainer = Trainer(network, rows, judge, config, seed=seed)
    trainer.best_loss = 1.0 if judge else trainer.best_loss  # The linear filter is a candidate, too.
    return trainer
