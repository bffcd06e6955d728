"""A principal component analysis that the user has already made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice._anndata.matrix import Matrix
from dice._arguments import known_key
from dice._core.projection import Projection, adopt_projection
from dice._core.standardize import Floats
from dice._errors import InputError, SlotError

#: Largest relative difference between a stored embedding and the projection that should give it.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Embedding:
    """An embedding (n, k), its loadings (d, k) and the positions (d,) of the genes that they use."""

    key: str
    values: Floats
    loadings: Floats
    genes: NDArray[np.intp]


def read_embedding(adata: AnnData, use_rep: str) -> Embedding:
    """Find embedding and loadings where scanpy puts them, and check that they are a PCA."""
    known_key(use_rep, adata.obsm, "embedding", "adata.obsm")
    key = "PCs" if use_rep == "X_pca" else use_rep
    if key not in adata.varm:
        raise SlotError(
            f"There are no loadings of adata.obsm[{use_rep!r}] in adata.varm[{key!r}]: "
            "use_rep takes what sc.pp.pca has made; leave it out to compute the loadings here."
        )
    values, loadings = np.asarray(adata.obsm[use_rep]), np.asarray(adata.varm[key])
    if values.ndim != 2 or loadings.shape != (adata.n_vars, values.shape[1]) or not values.size:
        raise InputError(
            f"adata.varm[{key!r}] of shape {loadings.shape} are no loadings of adata.obsm[{use_rep!r}] of "
            f"shape {values.shape}: run sc.pp.pca again, or leave use_rep out."
        )
    gram = loadings.T @ loadings
    if not np.allclose(gram, np.eye(len(gram)), atol=1e-3):
        raise InputError(
            f"The loadings in adata.varm[{key!r}] are not orthonormal, as those of PCA are: "
            "run sc.pp.pca again, or leave use_rep out."
        )
    return Embedding(use_rep, values, loadings, np.flatnonzero(loadings.any(1)))


def adopt(embedding: Embedding, matrix: Matrix, *, n_latent: int | str, scale: bool) -> Projection:
    """The projection that made the embedding from `matrix`, with or without scaled genes.

    scanpy stores neither mean nor scale, so that both are tried and the result is compared.
    """
    errors = []
    for scaled in (scale, not scale):
        loadings = embedding.loadings[embedding.genes]
        projection = adopt_projection(matrix, loadings, n_latent=n_latent, scale=scaled)
        expected = embedding.values[:, : projection.n_latent]
        latents = matrix.apply(projection.project)
        errors.append(float(np.linalg.norm(latents - expected) / (np.linalg.norm(expected) + 1e-12)))
        if errors[-1] < TOLERANCE:
            return projection
    raise InputError(
        f"The matrix projected on its loadings differs from adata.obsm[{embedding.key!r}] by {min(errors):.0%}: name "
        "the matrix that sc.pp.pca (with zero_center=True) was run on with layer=, or leave use_rep out."
    )
