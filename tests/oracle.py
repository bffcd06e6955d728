"""Exact posteriors to test against."""

from __future__ import annotations

import numpy as np
import torch

from dice._core.prior.mixture import MixtureDenoiser


def exact_mixture(reference, prior) -> MixtureDenoiser:
    """The true prior of ``datasets.synthetic`` in the PCA coordinates of a learned one.

    There y = R U - offset with R = Vhat' V, so that components stay Gaussian.
    """
    truth = reference.uns["dice_synthetic"]
    projection = prior.projection
    rotation = projection.loadings.T.astype(np.float64) @ reference.varm["V_true"]
    offset = projection.loadings.T.astype(np.float64) @ projection.mean
    means = np.asarray(truth["means"]) @ rotation.T - offset
    covariances = np.asarray(truth["variances"])[:, None, None] * (rotation @ rotation.T)
    weights = np.asarray(truth["weights"], dtype=np.float64)
    return MixtureDenoiser.from_moments(torch.as_tensor(weights), torch.as_tensor(means), torch.as_tensor(covariances))


def random_mixture(n_latent: int = 4, n_components: int = 3, seed: int = 0) -> MixtureDenoiser:
    """A small mixture with full covariances, in double precision."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(n_components, n_latent, n_latent)) * 0.4
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(n_latent)
    return MixtureDenoiser.from_moments(
        torch.as_tensor(rng.dirichlet(np.ones(n_components) * 3)),
        torch.as_tensor(rng.normal(size=(n_components, n_latent))),
        torch.as_tensor(covariances),
    )
