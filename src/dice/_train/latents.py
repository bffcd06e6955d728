"""From the expression of a reference to latents, and to the data that a denoiser learns from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from dice import _log
from dice._data.matrix import Matrix, Part
from dice._errors import InputError
from dice._model import networks
from dice._model.arrays import subsample
from dice._model.counts import TARGET_SUM, judge_counts, recover
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.pca import adopt_projection, fit_projection
from dice._model.prior import LearnedPrior
from dice._model.projection import Projection
from dice._model.training_data import MAX_MEASURED, TrainingData, make_rows, plain_data, thinned_data
from dice._train.cells import Embedding, ReferenceCells

#: Calibration cells that are kept inside the prior.
CALIBRATION_CELLS = 2000
#: Largest relative difference between a stored embedding and the projection that should give it.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Reduced:
    """Latents of a reference; PCA units."""

    projection: Projection
    likelihood: GaussianLikelihood
    #: Latents, residuals and depths of all cells.
    latents: Latents
    #: Latents and residuals of calibration cells, for the novelty test.
    calibration: dict[str, NDArray[np.float32]] | None


def reduce(cells: ReferenceCells, *, n_latent: int | str, scale: bool) -> Reduced:
    """Compute the loadings from the training cells, or take those of an embedding, and project all cells."""
    matrix, seen = cells.matrix, cells.seen
    if cells.embedding is None:
        projection = fit_projection(Part(matrix, seen), n_latent=n_latent, scale=scale)
    else:
        projection = _adopt(cells.embedding, matrix, n_latent=n_latent, scale=scale)
    likelihood = GaussianLikelihood.of(projection, np.arange(matrix.n_genes))
    latents = Latents.joined(matrix.each(likelihood.latents, desc="Projecting"), projection.n_latent)
    if cells.counts is not None:
        latents = replace(latents, log_depth=cells.counts.log_depth())
    if not latents.y[seen].any():
        raise InputError(
            "No gene varies among the cells, so that there is nothing to learn: check the matrix and mask_var."
        )
    few = subsample(np.flatnonzero(~seen), CALIBRATION_CELLS)
    calibration = {"y": latents.y[few], "residual": latents.residual[few]} if len(few) else None
    return Reduced(projection, likelihood, latents, calibration)


def _adopt(embedding: Embedding, matrix: Matrix, *, n_latent: int | str, scale: bool) -> Projection:
    """The projection that gives the embedding from `matrix`, with or without scaled genes.

    scanpy stores neither mean nor scale, so that both are tried and compared with the embedding.
    """
    errors = []
    loadings = embedding.loadings[embedding.genes]
    for scaled in (scale, not scale):
        projection = adopt_projection(matrix, loadings, n_latent=n_latent, scale=scaled)
        expected = embedding.latents[:, : projection.n_latent]
        latents = matrix.apply(projection.project)
        errors.append(float(np.linalg.norm(latents - expected) / (np.linalg.norm(expected) + 1e-12)))
        if errors[-1] < TOLERANCE:
            return projection
    raise InputError(
        f"The matrix projected on its loadings differs from adata.obsm[{embedding.key!r}] by {min(errors):.0%}: name "
        "the matrix that sc.pp.pca (with zero_center=True) was run on with layer=, or leave use_rep out."
    )


#: Smallest number of cells for measured noise; with fewer cells the noise is assumed.
MIN_CELLS = 100


def training_data(
    cells: ReferenceCells, reduced: Reduced, preset: str, seed: int, device: torch.device
) -> TrainingData:
    """Thinned copies if the preset learns from counts and the reference consists of counts, else latents."""
    usable = cells.seen & (cells.roles >= 0) & ~np.isnan(reduced.latents.log_depth)
    counted = judge_counts(reduced.latents.log_depth, reduced.latents.empty)[0] and usable.sum() >= MIN_CELLS
    if not networks.by_preset()[preset][1].counts or not counted:
        reason = "the preset assumes it" if counted else "the values are not log-normalised counts, or cells are few"
        _log.info(f"Noise: assumed Gaussian; {reason}.")
        return plain_data(reduced.latents.y, cells.roles, device)
    source = "recovered from log-normalised values" if cells.counts is None else "of the layer that was named"
    _log.info(f"Noise: learned by splitting the counts of {usable.sum()} cells, {source}.")
    chosen = np.flatnonzero(usable)
    if len(chosen) > MAX_MEASURED:
        chosen = np.sort(np.random.default_rng([seed, 2]).choice(chosen, MAX_MEASURED, replace=False))
    counts = recover(cells.matrix.take(chosen)) if cells.counts is None else cells.counts.take(chosen)
    target_sum = cells.statistics.get("sum_log", 0.0) or TARGET_SUM
    rows = make_rows(reduced.projection, counts, np.random.default_rng([seed, 3]), target_sum=target_sum)
    typical = float(np.median(reduced.latents.log_depth[usable]))
    return thinned_data(rows.to(device), chosen, cells.roles[chosen], reduced.projection.n_latent, typical)


def clean_latents(prior: LearnedPrior, cells: ReferenceCells, reduced: Reduced) -> NDArray[np.float32]:
    """Denoised latents (n, k) of all cells of the reference, as if the loadings had been computed without them.

    Without counts, and for single cells that are not counts, these are the noisy latents.
    """
    latents = reduced.latents
    if not prior.measured:
        return latents.y
    y = reduced.likelihood.honest(latents, cells.seen, reduced.projection)
    known = np.flatnonzero(~np.isnan(latents.log_depth))
    y[known] = prior.mean(y[known], latents.log_depth[known])
    return y
