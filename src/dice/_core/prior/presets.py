"""From latents and the name of a preset to a trainer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._core.prior import networks
from dice._core.prior.held_out import HeldOut
from dice._core.prior.mixup import LabelMixup
from dice._core.prior.training import Trainer
from dice._errors import InputError


@dataclass(frozen=True)
class Split:
    """Scaled latents of the cells to learn from and of those held out (None: nobody)."""

    train: Tensor
    held_out: Tensor | None
    #: Positions of the training cells among all.
    cells: np.ndarray


#: Roles of cells in the order of their codes: learned from, stopped on, kept from everything.
ROLES = ("train", "validation", "calibration")


def assign_roles(n_cells: int, validation: float, calibration: float, seed: int) -> NDArray[np.int8]:
    """Random role (n,) of every cell, as a code in `ROLES`, for given shares of the cells."""
    order = np.random.default_rng(seed).permutation(n_cells)
    # Two cells at least are left to learn from.
    n_validation = min(round(validation * n_cells), max(n_cells - 2, 0))
    n_calibration = min(round(calibration * n_cells), max(n_cells - n_validation - 2, 0))
    roles = np.zeros(n_cells, dtype=np.int8)
    roles[order[:n_validation]] = 1
    roles[order[n_validation : n_validation + n_calibration]] = 2
    return roles


def split(latents: NDArray[np.floating], roles: NDArray[np.int8], device: torch.device) -> Split:
    """Latents by role; calibration cells are left out."""
    values = torch.as_tensor(latents, dtype=torch.float32, device=device)
    cells, held_out = np.flatnonzero(roles == 0), np.flatnonzero(roles == 1)
    return Split(values[cells], values[held_out] if len(held_out) else None, cells)


def make_trainer(
    preset: str,
    data: Split,
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
        Scaled latents.
    noise
        Noise of the reference in scaled units: the lower end of the band that inference uses.
    mixup
        Mixup within labels, one for every training cell.
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
    denoiser = network.empty({"n_latent": data.train.shape[1], **chosen.size})
    denoiser.initialize(torch.Generator().manual_seed(seed))
    # Equal cells have no variance, and a loss relative to none is not a number.
    variances = data.train.var(0).clamp_min(1e-6)
    band = (float(np.clip(noise, 0.05, 0.5)), 2.0)
    held_out = HeldOut(data.held_out, variances, band, seed) if data.held_out is not None else None
    return Trainer(denoiser.to(data.train.device), data.train, held_out, config, mixup=mixup, seed=seed)
