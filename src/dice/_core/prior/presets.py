"""The ways to learn a denoiser: presets by name, and what each of them sets up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._core.prior.denoiser import Denoiser, EDMDenoiser
from dice._core.prior.held_out import HeldOut
from dice._core.prior.mixture import MixtureDenoiser
from dice._core.prior.mixup import Mixup
from dice._core.prior.paper import PaperDenoiser
from dice._core.prior.training import Trainer, TrainingConfig
from dice._errors import InputError


@dataclass(frozen=True)
class Preset:
    """A trained denoiser: its class, its size and how it is trained.

    ``epochs`` counts passes over the data, as the paper does, in place of ``training.max_steps``.
    """

    denoiser: type[Denoiser]
    size: dict[str, int]
    training: TrainingConfig
    epochs: int | None = None


#: Appendix C of the paper: AdamW 1e-4 with cosine decay, batches of 4048, no averaging, no early stop.
_PAPER = TrainingConfig(
    batch_size=4048,
    learning_rate=1e-4,
    beta2=0.999,
    warmup=1,
    clip_norm=math.inf,
    ema_decay=0.0,
    evaluate_every=100,
    patience=0,
)
PRESETS = {
    "default": Preset(EDMDenoiser, {"depth": 4}, TrainingConfig()),
    "paper": Preset(PaperDenoiser, {"width": 512, "depth": 8}, _PAPER, epochs=10_000),
    "paper-small": Preset(PaperDenoiser, {"width": 64, "depth": 2}, _PAPER, epochs=2_000),
}
NAMES = (*PRESETS, "gmm")


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
    mixup: Mixup | None = None,
    seed: int = 0,
    **overrides: Any,
) -> Trainer:
    """A trainer for one of the trained presets.

    Parameters
    ----------
    preset
        Name in `PRESETS`.
    data
        Scaled latents.
    noise
        Noise of the reference in scaled units: the lower end of the band that inference uses.
    mixup
        Augmentation, with one group for every training cell.
    seed
        Seed of weights, batches and noise.
    overrides
        Fields of :class:`TrainingConfig`; None keeps the preset's.
    """
    chosen = PRESETS[preset]
    config = replace(chosen.training, **{k: v for k, v in overrides.items() if v is not None})
    if chosen.epochs and overrides.get("max_steps") is None:
        steps = chosen.epochs * math.ceil(len(data.train) / config.batch_size)
        config = replace(config, max_steps=steps)
    if chosen.denoiser is PaperDenoiser and config.batch_size < 2:
        raise InputError(f"preset={preset!r} normalises over the cells of a batch: pass batch_size=2 or more.")
    device = data.train.device
    n_latent = data.train.shape[1]
    size = {"n_latent": n_latent, "width": default_width(n_latent)} | chosen.size
    denoiser = chosen.denoiser.empty(size)
    denoiser.initialize(torch.Generator().manual_seed(seed))
    # Equal cells have no variance, and a loss relative to none is not a number.
    variances = data.train.var(0).clamp_min(1e-6)
    band = (float(np.clip(noise, 0.05, 0.5)), 2.0)
    held_out = HeldOut(data.held_out, variances, band, seed) if data.held_out is not None else None
    return Trainer(denoiser.to(device), data.train, held_out, config, mixup=mixup, seed=seed)


def default_width(n_latent: int) -> int:
    """Hidden width for k latents: about 2.5 k, in steps of 64 from 128 to 256.

    Wider networks cost more and learn hardly more: on bmmc (4,000 cells) the held-out loss is 0.631 at width 128 and
    0.630 at width 256 with 50 latents, and 0.778 and 0.767 with 100.
    """
    return int(np.clip(64 * math.ceil(2.5 * n_latent / 64), 128, 256))


def fit_mixture(data: Split, *, seed: int = 0) -> tuple[MixtureDenoiser, dict[str, list[float]]]:
    """Gaussian mixture by expectation maximisation; held-out likelihood chooses its size.

    Sizes double until the held-out log-likelihood falls. Covariances are shrunk a little towards their
    diagonal mean, which keeps components of few cells invertible.
    """
    from sklearn.mixture import GaussianMixture

    train = data.train.cpu().numpy().astype(np.float64)
    test = train if data.held_out is None else data.held_out.cpu().numpy().astype(np.float64)
    best: Any = None
    history: dict[str, list[float]] = {"n_components": [], "log_likelihood": []}
    for n_components in (1, 2, 4, 8, 16, 32, 64):
        if n_components > 1 and n_components * 10 > len(train):
            break
        model = GaussianMixture(n_components, reg_covar=1e-3, random_state=seed, max_iter=200)
        model.fit(train)
        likelihood = float(model.score(test))
        history["n_components"].append(float(n_components))
        history["log_likelihood"].append(likelihood)
        if best is not None and likelihood <= max(history["log_likelihood"][:-1]):
            break
        best = model
    moments = (best.weights_, best.means_, best.covariances_)
    mixture = MixtureDenoiser.from_moments(*(torch.as_tensor(m) for m in moments)).float()
    return mixture.eval(), history
