"""Exact posteriors to test against, and matrices to read chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dice._data.sources import add_up
from dice._model.arrays import Sums
from dice._model.networks.mixture import MixtureDenoiser
from dice._model.sampler import as_column


@dataclass(frozen=True)
class Chunks:
    """Chunks taken one after the other from a fresh iterator, to be summed over."""

    fresh: Callable[[], Iterable[Any]]

    def total(self, function: Callable[[Any], Sums]) -> Sums:
        return add_up(map(function, self.fresh()))


class ExactMixture(MixtureDenoiser):
    """A Gaussian mixture with its density, posterior covariance and samples."""

    def log_prob(self, z: Tensor, s: Tensor) -> Tensor:
        """Log density (n,) of z under the mixture blurred by noise of standard deviation s."""
        total = self.variances + as_column(s, z).square()[:, None]
        along = torch.einsum("nck,ckj->ncj", z[:, None] - self.means, self.axes)
        log_2pi = torch.log(torch.tensor(2 * torch.pi, dtype=z.dtype, device=z.device))
        log_joint = self.weights.log() - 0.5 * ((along.square() / total).sum(-1) + total.log().sum(-1))
        return torch.logsumexp(log_joint, dim=1) - 0.5 * self.n_latent * log_2pi

    def posterior_covariance(self, z: Tensor, s: Tensor) -> Tensor:
        """Exact Cov[U | z] (n, k, k): within components plus between their means."""
        (responsibilities, means), variances = self.components(z, s), self._posterior_variances(z, s)
        within = torch.einsum("nc,ckj,ncj,clj->nkl", responsibilities, self.axes, variances, self.axes)
        centred = means - torch.einsum("nc,nck->nk", responsibilities, means)[:, None]
        return within + torch.einsum("nc,nck,ncl->nkl", responsibilities, centred, centred)

    def sample_posterior(self, z: Tensor, s: Tensor, generator: torch.Generator) -> Tensor:
        """One exact draw (n, k) from p(U | z) for every cell."""
        (responsibilities, means), variances = self.components(z, s), self._posterior_variances(z, s)
        chosen = torch.multinomial(responsibilities, 1, generator=generator)[:, 0]
        rows = torch.arange(len(z), device=z.device)
        normal = torch.randn(z.shape, dtype=z.dtype, device=z.device, generator=generator)
        along = variances[rows, chosen].sqrt() * normal
        return means[rows, chosen] + torch.einsum("nj,nkj->nk", along, self.axes[chosen])

    def sample(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """n draws (n, k) from the prior itself and the component (n,) each came from."""
        chosen = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        shape = (n, self.n_latent)
        normal = torch.randn(shape, dtype=self.means.dtype, generator=generator)
        along = self.variances[chosen].sqrt() * normal
        return self.means[chosen] + torch.einsum("nj,nkj->nk", along, self.axes[chosen]), chosen

    def _posterior_variances(self, z: Tensor, s: Tensor) -> Tensor:
        """Variances (n, C, k) of the posterior's components along their axes."""
        noise = as_column(s, z).square()[:, None]
        return (self.variances * noise / (self.variances + noise)).expand(len(z), -1, -1)


def exact_mixture(reference, prior) -> ExactMixture:
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
    return ExactMixture.from_moments(torch.as_tensor(weights), torch.as_tensor(means), torch.as_tensor(covariances))


def random_mixture(n_latent: int = 4, n_components: int = 3, seed: int = 0) -> ExactMixture:
    """A small mixture with full covariances, in double precision."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(n_components, n_latent, n_latent)) * 0.4
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(n_latent)
    return ExactMixture.from_moments(
        torch.as_tensor(rng.dirichlet(np.ones(n_components) * 3)),
        torch.as_tensor(rng.normal(size=(n_components, n_latent))),
        torch.as_tensor(covariances),
    )
