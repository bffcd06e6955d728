"""Latents of the reference's own cells as if the loadings had been computed without them.

PCA fits the noise of its own cells: to first order the loadings are v_l = v_l(-i) + r_i y_il(-i) / (s_l^2 - b), where
v_l(-i) are those without cell i, r_i is what they leave of the cell, s_l the singular values and b the mean eigenvalue
beneath. Reading the cell, or a part of its counts, gives its own noise once more, so that two parts of a cell seem to
agree: on 4,000 cells of bmmc their covariance in latents 36 to 50 is 15.6 for cells of the reference, 1.7 for others.
A query has none of this, and neither has a reference that is read without its own influence.
"""

from __future__ import annotations

import numpy as np

from dice._types import Floats

#: Smallest distance of an eigenvalue from those beneath, as a share of the largest one.
CLOSEST = 1e-3


def influence(singular_values: Floats, n_latent: int) -> Floats:
    """1 / (s_l^2 - b) for every latent (k,): how far a unit of a cell's residual turns its loadings.

    `singular_values` are all that are known of the reference; b weighs eigenvalues by the residual energy in them.
    """
    eigenvalues = np.square(np.asarray(singular_values, dtype=np.float64))
    beneath = eigenvalues[n_latent:]
    bulk = np.square(beneath).sum() / beneath.sum() if beneath.sum() > 0 else 0.0
    return 1 / np.maximum(eigenvalues[:n_latent] - bulk, CLOSEST * eigenvalues[0])


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
        What :func:`influence` gives.
    """
    residual = np.maximum(energy - np.square(own).sum(1), 0)[:, None]
    honest = own / (1 + residual * weight)
    shared = (product - np.einsum("nk,nk->n", y, own))[:, None]
    return (y - shared * weight * honest).astype(np.float32)
