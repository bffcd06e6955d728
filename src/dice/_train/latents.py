"""From the expression of a reference to its latents."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dice._data.matrix import Matrix, Part
from dice._errors import InputError
from dice._model.evenly import evenly
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.projection import Projection, adopt_projection, fit_projection
from dice._train.cells import Embedding, ReferenceCells

#: Calibration cells that are kept inside the prior.
CALIBRATION_CELLS = 2000
#: Largest relative difference between a stored embedding and the projection that should give it.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Reduced:
    """Cells of a reference in the space of their prior; PCA units."""

    projection: Projection
    #: What the expression of all cells says.
    latents: Latents
    #: Latents and residuals of cells that nothing was learned from, for a later novelty test.
    calibration: dict[str, NDArray[np.float32]] | None


def reduce(cells: ReferenceCells, *, n_latent: int | str, scale: bool) -> Reduced:
    """Find the loadings by the cells that may be seen, or take those of an embedding, and project all cells."""
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
    few = np.flatnonzero(~seen)
    few = evenly(few, CALIBRATION_CELLS)
    calibration = {"y": latents.y[few], "residual": latents.residual[few]} if len(few) else None
    return Reduced(projection, latents, calibration)


def _adopt(embedding: Embedding, matrix: Matrix, *, n_latent: int | str, scale: bool) -> Projection:
    """The projection that made the embedding from `matrix`, with or without scaled genes.

    scanpy stores neither mean nor scale, so that both are tried and the result is compared.
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
