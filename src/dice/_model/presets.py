"""Training data, batches with and without mixup, and the trainer of a preset with its held-out loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._errors import InputError
from dice._model import networks
from dice._model.denoiser import Denoiser
from dice._model.training import Trainer

#: Roles of cells in the order of their codes.
ROLES = ("train", "validation", "calibration")
#: Gaussian noise levels of the held-out loss with counts, in units of the spread of the latents.
COUNTED_LEVELS = (0.0, 0.5)


@dataclass(frozen=True)
class TrainingData:
    """Training data in scaled units: rows of thinned copies, or latents for values that are not counts."""

    train: Tensor
    #: Data of held-out cells; None if there are none.
    held_out: Tensor | None
    #: Scale that latents were divided by.
    scale: float
    n_latent: int
    #: Positions of the training cells among all cells.
    cells: NDArray[np.intp]
    #: Typical log depth; None without counts.
    typical: float | None = None


def assign_roles(n_cells: int, validation: float, calibration: float, seed: int) -> NDArray[np.int8]:
    """Random role (n,) of every cell, as a code in `ROLES`, for given shares of the cells."""
    order = np.random.default_rng(seed).permutation(n_cells)
    # At least two cells are left for training.
    n_validation = min(round(validation * n_cells), max(n_cells - 2, 0))
    n_calibration = min(round(calibration * n_cells), max(n_cells - n_validation - 2, 0))
    roles = np.zeros(n_cells, dtype=np.int8)
    roles[order[:n_validation]] = 1
    roles[order[n_validation : n_validation + n_calibration]] = 2
    return roles


def plain_data(latents: NDArray[np.floating], roles: NDArray[np.int8], device: torch.device) -> TrainingData:
    """Latents (n, k) in PCA units as training data without counts; calibration cells are left out."""
    cells, held_out = np.flatnonzero(roles == 0), np.flatnonzero(roles == 1)
    scale = float(np.sqrt(latents[(roles == 0) | (roles == 1)].var(0).mean()))
    values = torch.as_tensor(latents / scale, dtype=torch.float32, device=device)
    return TrainingData(
        values[cells], values[held_out] if len(held_out) else None, scale, values.shape[1], cells.astype(np.intp)
    )


@dataclass(frozen=True)
class LabelMixup:
    """Replace a cell by a Dirichlet mixture of itself and cells of its label.

    With ``Dirichlet(1)`` weights over 5 cells, a mixture has one third of the variance of its label. The learned prior
    is then sharper than the training cells.

    Parameters
    ----------
    labels
        Label code (n,) of every cell, -1 for cells that are never mixed (missing labels).
    points
        Number of cells in a mixture, the first one included.
    probability
        Share of training cells that are replaced by a mixture.
    concentration
        Parameter of the symmetric Dirichlet distribution.
    """

    labels: NDArray[np.integer]
    points: int = 5
    probability: float = 0.9
    concentration: float = 1.0


class BatchSampler:
    """Batches of latents (n, k), drawn with replacement; all cells if the batch is larger."""

    def __init__(self, latents: Tensor) -> None:
        self.latents = latents

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """One batch (size, k)."""
        return self.latents[self._cells(size, generator)]

    def _cells(self, size: int, generator: torch.Generator) -> Tensor:
        device, n = self.latents.device, len(self.latents)
        if size >= n:
            return torch.arange(n, device=device)
        return torch.randint(n, (size,), generator=generator, device=device)


class MixingSampler(BatchSampler):
    """Batches whose cells are mixed with others of their label."""

    def __init__(self, latents: Tensor, mixup: LabelMixup) -> None:
        super().__init__(latents)
        self.mixup = mixup
        # Cells of a label are adjacent in `order`, so that a random offset gives another one.
        order = np.argsort(mixup.labels, kind="stable")
        _, codes, counts = np.unique(mixup.labels, return_inverse=True, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        arrays = order, starts[codes], counts[codes], mixup.labels >= 0
        self.order, self.starts, self.counts, self.mixable = (torch.as_tensor(x).to(latents.device) for x in arrays)

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """One batch (size, k) of mixtures and, with the complementary probability, cells as they are."""
        device = self.latents.device
        cells = self._cells(size, generator)
        batch, n = self.latents[cells], len(cells)
        offsets = torch.rand((n, self.mixup.points - 1), generator=generator, device=device)
        others = self.order[self.starts[cells, None] + (offsets * self.counts[cells, None]).long()]
        parts = torch.cat([batch[:, None], self.latents[others]], dim=1)
        mixed = torch.einsum("np,npk->nk", self._weights(n, generator), parts)
        coin = torch.rand(n, generator=generator, device=device) < self.mixup.probability
        return torch.where((coin & self.mixable[cells])[:, None], mixed, batch)

    def _weights(self, size: int, generator: torch.Generator) -> Tensor:
        """Symmetric Dirichlet weights (size, points), as normalised Gamma variables."""
        shape, device = (size, self.mixup.points), self.latents.device
        if self.mixup.concentration == 1.0:
            gamma = -torch.log1p(-torch.rand(shape, generator=generator, device=device))
            return gamma / gamma.sum(1, keepdim=True).clamp_min(1e-30)
        # Torch draws Gamma variables from its global generator only, so that numpy draws them.
        seed = torch.randint(2**62, (), generator=generator, device=device)
        logs = _log_gamma(self.mixup.concentration, shape, np.random.default_rng(int(seed)))
        return torch.softmax(torch.as_tensor(logs, device=device), dim=1).to(self.latents.dtype)


def _log_gamma(concentration: float, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Logarithms of Gamma variables by G(c) = G(c + 1) U^(1/c). For small c the variables themselves underflow."""
    uniform = 1 - rng.random(shape)
    return np.log(rng.gamma(concentration + 1, size=shape)) + np.log(uniform) / concentration


def make_trainer(
    preset: str,
    data: TrainingData,
    *,
    noise: float,
    mixup: LabelMixup | None = None,
    seed: int = 0,
    **overrides: Any,
) -> Trainer:
    """The trainer of a preset.

    Parameters
    ----------
    preset
        Name of a preset that is trained.
    data
        Training data.
    noise
        Noise of the reference in scaled units: the smallest noise level of inference without counts.
    mixup
        Mixup within labels, with one label for every training cell.
    seed
        Seed of weights, batches and noise.
    overrides
        Fields of ``TrainingConfig``; None keeps the preset's.
    """
    network, chosen = networks.by_preset()[preset]
    if chosen.training is None:
        raise TypeError(f"preset={preset!r} is fitted at once, without training steps.")
    config = replace(chosen.training, **{k: v for k, v in overrides.items() if v is not None})
    if chosen.epochs and overrides.get("max_steps") is None:
        config = replace(config, max_steps=chosen.epochs * math.ceil(len(data.train) / config.batch_size))
    if config.batch_size < network.least_batch:
        raise InputError(
            f"preset={preset!r} normalises over the cells of a batch: pass batch_size={network.least_batch} or more."
        )
    denoiser = network.empty({"n_latent": data.n_latent, **chosen.size})
    denoiser.initialize(torch.Generator().manual_seed(seed))
    denoiser.start(data.train.cpu(), None if data.held_out is None else data.held_out.cpu(), data.typical)
    denoiser.to(data.train.device)
    held_out = None if data.held_out is None else _judge(data, denoiser, noise, seed)
    batches = BatchSampler(data.train) if mixup is None else MixingSampler(data.train, mixup)
    trainer = Trainer(denoiser, batches, held_out, config, seed=seed)
    if held_out is not None and denoiser.counted:
        trainer.best_loss = 1.0  # The loss of the linear filter, which the network starts at.
    return trainer


def _judge(data: TrainingData, denoiser: Denoiser, noise: float, seed: int) -> HeldOut:
    """The held-out loss, relative to the linear filter with counts and to the Wiener filter without."""
    assert data.held_out is not None
    if data.typical is not None:
        return HeldOut(data.held_out, data.train.new_tensor(COUNTED_LEVELS), None, denoiser, seed)
    levels = data.train.new_tensor(np.geomspace(float(np.clip(noise, 0.05, 0.5)), 2.0, num=6))
    # Equal cells have no variance, and the loss would not be a number.
    variances, squares = data.train.var(0).clamp_min(1e-6), levels.square()[:, None]
    return HeldOut(data.held_out, levels, (variances * squares / (variances + squares)).mean(1), denoiser, seed)


class HeldOut:
    """Denoising error of held-out cells at the noise levels of inference, relative to a linear denoiser.

    The noise is drawn once, so that evaluations differ by the weights only.
    """

    def __init__(self, rows: Tensor, levels: Tensor, linear: Tensor | None, denoiser: Denoiser, seed: int) -> None:
        """`linear` are the errors (levels,) of the linear denoiser; None measures those of `denoiser`."""
        self.rows, self.levels = rows, levels
        generator = torch.Generator(rows.device).manual_seed(seed)
        shape = (len(levels), len(rows), denoiser.n_latent)
        self.noise = torch.randn(shape, generator=generator, device=rows.device)
        self.linear = (self.errors(denoiser) if linear is None else linear).clamp_min(1e-12)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the loss depends on."""
        return self.rows, self.levels

    @torch.no_grad()
    def errors(self, denoiser: Denoiser) -> Tensor:
        """Mean squared error at every level."""
        pairs = zip(self.levels, self.noise, strict=True)
        return torch.stack([denoiser.error(self.rows, level, noise) for level, noise in pairs])

    def loss(self, denoiser: Denoiser) -> float:
        return float((self.errors(denoiser) / self.linear).mean())
