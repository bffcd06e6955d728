"""The data that a denoiser learns from: roles of cells, batches with and without mixup, and the held-out loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._model.denoiser import Denoiser
from dice._model.thinning import Rows
from dice._types import Codes
from dice.options import Mixup

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


def thinned_data(copies: Tensor, cells: Codes, roles: NDArray[np.int8], n_latent: int, typical: float) -> TrainingData:
    """Thinned copies (copies, n, 4 k + 3) of `cells` (n,) with these roles, in PCA units, as training data."""
    learned, judged = (Rows(copies[:, roles == role].flatten(0, 1), n_latent) for role in (0, 1))
    scale = learned.clean_scale()
    held_out = judged.scaled(scale) if len(judged) else None
    return TrainingData(learned.scaled(scale), held_out, scale, n_latent, cells[roles == 0], typical)


class Batches:
    """Batches of training data (n, m), drawn with replacement; all cells if the batch is larger.

    Parameters
    ----------
    data
        Rows or latents, on the device to train on.
    labels
        Label code (n,) of every cell for a mixup, -1 for cells that are never mixed (missing labels).
    mixup
        Replace cells by Dirichlet mixtures of themselves and cells of their label. With five cells and equal
        weights on average, a mixture has one third of the variance of its label. The learned prior is then sharper than
        the training cells.
    """

    def __init__(self, data: Tensor, labels: Codes | None = None, mixup: Mixup | None = None) -> None:
        self.data, self.labels, self.mixup = data, labels, mixup
        if labels is not None:
            # Cells of a label are adjacent in `order`, so that a random offset gives another one.
            self.order = np.argsort(labels, kind="stable")
            _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
            self.starts, self.counts = (np.cumsum(counts) - counts)[codes], counts[codes]

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """One batch (size, m), mixed if there is a mixup."""
        n, device = len(self.data), self.data.device
        if size >= n:
            cells = torch.arange(n, device=device)
        else:
            cells = torch.randint(n, (size,), generator=generator, device=device)
        return self.data[cells] if self.mixup is None else self._mixed(cells, self.mixup, generator)

    def _mixed(self, cells: Tensor, mixup: Mixup, generator: torch.Generator) -> Tensor:
        assert self.labels is not None
        # Torch draws Gamma variables from its global generator only, so that numpy draws the weights.
        seed = torch.randint(2**62, (), generator=generator, device=cells.device)
        rng, own = np.random.default_rng(int(seed)), cells.cpu().numpy()
        weights = rng.dirichlet(np.full(mixup.points, mixup.concentration), len(own))
        offsets = rng.random((len(own), mixup.points - 1)) * self.counts[own, None]
        parts = np.column_stack([own, self.order[self.starts[own, None] + offsets.astype(np.intp)]])
        # A cell that stays as it is is a mixture of itself.
        stays = (rng.random(len(own)) >= mixup.probability) | (self.labels[own] < 0)
        weights[stays] = np.eye(1, mixup.points)
        shares = torch.as_tensor(weights, dtype=self.data.dtype, device=cells.device)
        return torch.einsum("np,npk->nk", shares, self.data[torch.as_tensor(parts, device=cells.device)])


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

    @classmethod
    def of(cls, data: TrainingData, denoiser: Denoiser, noise: float, seed: int) -> HeldOut | None:
        """The loss relative to the linear filter with counts, and to the Wiener filter without; None without cells."""
        if data.held_out is None:
            return None
        if data.typical is not None:
            return cls(data.held_out, data.train.new_tensor(COUNTED_LEVELS), None, denoiser, seed)
        levels = data.train.new_tensor(np.geomspace(float(np.clip(noise, 0.05, 0.5)), 2.0, num=6))
        # Equal cells have no variance, and the loss would not be a number.
        variances, squares = data.train.var(0).clamp_min(1e-6), levels.square()[:, None]
        return cls(data.held_out, levels, (variances * squares / (variances + squares)).mean(1), denoiser, seed)

    @torch.no_grad()
    def errors(self, denoiser: Denoiser) -> Tensor:
        """Mean squared error at every level."""
        pairs = zip(self.levels, self.noise, strict=True)
        return torch.stack([denoiser.error(self.rows, level, noise) for level, noise in pairs])

    def loss(self, denoiser: Denoiser) -> float:
        return float((self.errors(denoiser) / self.linear).mean())
