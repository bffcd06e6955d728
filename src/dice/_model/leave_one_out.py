"""Latents of the reference's own cells as if the loadings had been computed without them.

PCA fits the noise of its own cells. To first order the loadings are v_l = v_l(-i) + r_i y_il(-i) / (s_l^2 - b), where
v_l(-i) are the loadings without cell i, r_i is the residual of the cell under them, s_l are the singular values and b
is the bulk of the eigenvalues beneath. The projection of a cell, or of a part of its counts, then contains its own
noise a second time, so that two parts of a cell seem to agree: on 4,000 cells of bmmc their covariance in latents 36 to
50 is 15.6 for cells of the reference and 1.7 for others. The projection of a query has no such error. Removing it from
the reference makes the two comparable.
"""

from __future__ import annotations

import numpy as np

from dice._model.projection import Projection
from dice._types import Floats

#: Smallest distance of an eigenvalue from those beneath, as a share of the largest one.
CLOSEST = 1e-3


def influence(projection: Projection) -> Floats:
    """1 / (s_l^2 - b) for every latent (k,): how far a unit of a cell's residual turns the loadings."""
    eigenvalues = np.square(projection.singular_values[: projection.n_latent], dtype=np.float64)
    return 1 / np.maximum(eigenvalues - projection.bulk, CLOSEST * eigenvalues[0])


def without_self(y: Floats, own: Floats, product: Floats, energy: Floats, weight: Floats) -> Floats:
    """Latents (n, k) of reference cells, or of parts of them, by loadings that do not know these cells.

    Parameters
    ----------
    y
        Latents of the parts by the loadings.
    own
        Latents of the whole cells, which the loadings were computed from.
    product
        Inner products (n,) of the standardised part and the standardised whole cell over all genes.
    energy
        Squared norms (n,) of the standardised whole cells.
    weight
        The result of :func:`influence`.
    """
    residual = np.maximum(energy - np.square(own).sum(1), 0)[:, None]
    honest = own / (1 + residual * weight)
    shared = (product - np.einsum("nk,nk->n", y, own))[:, None]
    return (y - shared * weight * honest).astype(np.float32)
