"""What a denoiser learns from: thinned copies of the reference's cells, or their latents where there are no counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from dice import _log
from dice._model import networks
from dice._model.counts import judge_counts, recover
from dice._model.likelihood import GaussianLikelihood
from dice._model.presets import ROLES, TrainingData, plain_data
from dice._model.prior import LearnedPrior
from dice._model.rows import MAX_MEASURED, ReferenceReader, Rows, make_rows
from dice._model.thinning import TARGET_SUM
from dice._train.cells import ReferenceCells
from dice._train.latents import Reduced
from dice._types import Mask

#: Fewest cells whose counts are split; with fewer, the noise is assumed.
MIN_CELLS = 100


def training_data(
    cells: ReferenceCells, reduced: Reduced, preset: str, figures: Mapping[str, float], seed: int, device: torch.device
) -> TrainingData:
    """Rows of thinned copies where the preset learns from counts and the reference is made of them, else latents."""
    usable = cells.seen & (cells.roles >= 0) & ~np.isnan(reduced.latents.log_depth)
    counted = judge_counts(reduced.latents.log_depth, reduced.latents.empty)[0] and usable.sum() >= MIN_CELLS
    if not networks.by_preset()[preset][1].counts or not counted:
        reason = "the preset assumes it" if counted else "the values are no log-normalised counts, or of too few cells"
        _log.info(f"Noise: assumed Gaussian; {reason}.")
        return plain_data(reduced.latents.y, cells.roles, device)
    source = "recovered from log-normalised values" if cells.counts is None else "of the layer that was named"
    _log.info(f"Noise: learned by splitting the counts of {usable.sum()} cells, {source}.")
    return _thinned_data(cells, reduced, usable, figures.get("sum_log", 0.0) or TARGET_SUM, seed, device)


def _thinned_data(
    cells: ReferenceCells, reduced: Reduced, usable: Mask, target_sum: float, seed: int, device: torch.device
) -> TrainingData:
    chosen, k = np.flatnonzero(usable), reduced.projection.n_latent
    if len(chosen) > MAX_MEASURED:
        chosen = np.sort(np.random.default_rng([seed, 2]).choice(chosen, MAX_MEASURED, replace=False))
    counts = recover(cells.matrix.take(chosen)) if cells.counts is None else cells.counts.take(chosen)
    reader = ReferenceReader(reduced.projection, counts)
    rows = make_rows(reader, np.random.default_rng([seed, 3]), target_sum=target_sum)
    held_out = cells.roles[chosen] == ROLES.index("validation")
    learned, judged = (Rows(rows[:, part].reshape(-1, rows.shape[2]), k) for part in (~held_out, held_out))
    scale = learned.clean_scale()
    return TrainingData(
        train=learned.scaled(scale).to(device),
        held_out=judged.scaled(scale).to(device) if len(judged) else None,
        scale=scale,
        n_latent=k,
        cells=chosen[~held_out],
        typical=float(np.median(reduced.latents.log_depth[usable])),
    )


def clean_latents(prior: LearnedPrior, cells: ReferenceCells, reduced: Reduced) -> NDArray[np.float32]:
    """Latents (n, k) of all cells of the reference: denoised, by loadings that do not know them, if depth tells noise.

    Without counts, and for single cells that are no counts, they are the latents as they are.
    """
    latents, projection = reduced.latents, reduced.projection
    if not prior.measured:
        return latents.y
    likelihood = GaussianLikelihood.of(projection, np.arange(cells.matrix.n_genes))
    y = likelihood.honest(latents, cells.seen, projection)
    known = np.flatnonzero(~np.isnan(latents.log_depth))
    y[known] = prior.mean(y[known], latents.log_depth[known])
    return y
