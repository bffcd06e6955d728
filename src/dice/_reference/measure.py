"""Learning the measurement on a reference, and its clean latents."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from dice import _log
from dice._core.measurement.counts import judge_counts, recover
from dice._core.measurement.network import MeasurementNetwork
from dice._core.measurement.rows import MAX_MEASURED, ReferenceReader, make_rows, make_trainer
from dice._core.measurement.thinning import TARGET_SUM
from dice._core.posterior.likelihood import GaussianLikelihood
from dice._core.prior import networks
from dice._core.prior.presets import ROLES
from dice._reference.cells import ReferenceCells
from dice._reference.latents import Reduced
from dice._reference.learn import noise_checkpoint, train
from dice._types import Codes
from dice.options import Training

#: Fewest held-out cells that can stop a training, and fewest cells at all: with fewer, the linear filter is all.
MIN_HELD_OUT, MIN_CELLS = 20, 100


def clean(
    cells: ReferenceCells,
    reduced: Reduced,
    preset: str,
    training: Training,
    figures: Mapping[str, float],
    seed: int,
    device: torch.device,
) -> tuple[MeasurementNetwork | None, NDArray[np.float32]]:
    """The measurement where a preset wants it and there is one, and the latents (n, k) to learn the prior on."""
    wanted = networks.by_preset()[preset][1].measured
    measurement = measure(cells, reduced, training, figures, seed, device) if wanted else None
    return measurement, reduced.latents.y if measurement is None else clean_latents(measurement, cells, reduced)


def measure(
    cells: ReferenceCells,
    reduced: Reduced,
    training: Training,
    figures: Mapping[str, float],
    seed: int,
    device: torch.device,
) -> MeasurementNetwork | None:
    """The measurement of a reference; None where its values are no log-normalised counts, or its cells too few."""
    counted = ~np.isnan(reduced.latents.log_depth)
    usable = cells.seen & (cells.roles >= 0) & counted
    if not judge_counts(reduced.latents.log_depth, reduced.latents.empty)[0] or usable.sum() < MIN_CELLS:
        _log.info("Noise: assumed Gaussian; the values are no log-normalised counts, or of too few cells.")
        return None
    source = "recovered from log-normalised values" if cells.counts is None else "of the layer that was named"
    _log.info(f"Noise: measured by splitting the counts of {usable.sum()} cells, {source}.")
    chosen = np.flatnonzero(usable)
    if len(chosen) > MAX_MEASURED:
        chosen = np.sort(np.random.default_rng([seed, 2]).choice(chosen, MAX_MEASURED, replace=False))
    counts = recover(cells.matrix.take(chosen)) if cells.counts is None else cells.counts.take(chosen)
    reader = ReferenceReader(reduced.projection, counts)
    rows = make_rows(reader, np.random.default_rng([seed, 3]), target_sum=figures.get("sum_log", 0.0) or TARGET_SUM)
    held_out = cells.roles[chosen] == ROLES.index("validation")
    learned, judged = (rows[:, part].reshape(-1, rows.shape[2]).to(device) for part in (~held_out, held_out))
    linear_only = held_out.sum() < MIN_HELD_OUT
    typical = float(np.median(reduced.latents.log_depth[usable]))
    trainer = make_trainer(learned, judged, typical=typical, seed=seed, max_steps=training.max_steps)
    if linear_only:
        trainer.restore_best()
    else:
        path = None if training.checkpoint is None else noise_checkpoint(training.checkpoint)
        train(trainer, path, seed, desc="Learning noise", keep_interrupted=training.keep_interrupted)
    network = trainer.denoiser.cpu().requires_grad_(False).eval()
    assert isinstance(network, MeasurementNetwork)
    return network


def clean_latents(network: MeasurementNetwork, cells: ReferenceCells, reduced: Reduced) -> NDArray[np.float32]:
    """Clean latents (n, k) of all cells of the reference, by loadings that do not know them."""
    latents, projection = reduced.latents, reduced.projection
    likelihood = GaussianLikelihood.of(projection, np.arange(cells.matrix.n_genes))
    y = likelihood.honest(latents, cells.seen, projection)
    known: Codes = np.flatnonzero(~np.isnan(latents.log_depth))
    y[known] = network.mean(y[known].astype(np.float32), latents.log_depth[known])
    return y
