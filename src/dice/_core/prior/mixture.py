"""The closed-form prior: a Gaussian mixture, whose posterior under Gaussian noise is a mixture too.

It is the oracle of the tests, a benchmark row, and the ``"gmm"`` preset. With S_c = Q_c diag(l_c) Q_c'
every quantity for every noise level s needs only the eigenvalues l_c + s^2, so that each cell may have
a noise level of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dice._core.prior.denoiser import SMALLEST, Denoiser, as_column
from dice._core.prior.schema import is_orthonormal


class MixtureDenoiser(Denoiser):
    """Exact D(z; s), posterior covariance and posterior samples of a Gaussian mixture.

    Parameters
    ----------
    n_latent
        Dimension k of the latent space.
    n_components
        Number C of mixture components.
    """

    weights: Tensor
    means: Tensor
    axes: Tensor
    variances: Tensor

    def __init__(self, n_latent: int, n_components: int) -> None:
        super().__init__()
        self.n_latent = n_latent
        self.n_components = n_components
        eye = torch.eye(n_latent).repeat(n_components, 1, 1)
        self.register_buffer("weights", torch.full((n_components,), 1 / n_components))
        self.register_buffer("means", torch.zeros(n_components, n_latent))
        self.register_buffer("axes", eye)
        self.register_buffer("variances", torch.ones(n_components, n_latent))

    @classmethod
    def from_moments(cls, weights: Tensor, means: Tensor, covariances: Tensor) -> MixtureDenoiser:
        """Build from weights (C,), means (C, k) and covariances (C, k, k), in their precision."""
        mixture = cls(means.shape[1], means.shape[0]).to(means.dtype)
        variances, axes = torch.linalg.eigh(covariances)
        mixture.weights.copy_(weights / weights.sum())
        mixture.means.copy_(means)
        mixture.variances.copy_(variances.clamp_min(2 * SMALLEST))
        mixture.axes.copy_(axes)
        return mixture

    @property
    def config(self) -> dict[str, int]:
        return {"n_latent": self.n_latent, "n_components": self.n_components}

    def is_sound(self) -> bool:
        total = float(self.weights.double().sum())
        positive = bool((self.weights >= 0).all() and (self.variances > SMALLEST).all())
        return positive and abs(total - 1) < 1e-3 and is_orthonormal(self.axes.numpy()) and super().is_sound()

    def forward(self, z: Tensor, s: Tensor) -> Tensor:
        """E[U | U + s n = z]: the responsibility-weighted component means."""
        responsibilities, means, _ = self.components(z, s)
        return torch.einsum("nc,nck->nk", responsibilities, means)

    def components(self, z: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Posterior mixture of each cell: weights (n, C), means (n, C, k), axis variances (n, C, k)."""
        noise = as_column(s, z).square()[:, None]
        total = self.variances + noise
        along = torch.einsum("nck,ckj->ncj", z[:, None] - self.means, self.axes)
        responsibilities = torch.softmax(self._log_joint(along, total), dim=1)
        shrunk = self.variances / total * along
        means = self.means + torch.einsum("ncj,ckj->nck", shrunk, self.axes)
        return responsibilities, means, (self.variances * noise / total).expand_as(means)

    def log_prob(self, z: Tensor, s: Tensor) -> Tensor:
        """Log density (n,) of z under the mixture blurred by noise of standard deviation s."""
        total = self.variances + as_column(s, z).square()[:, None]
        along = torch.einsum("nck,ckj->ncj", z[:, None] - self.means, self.axes)
        log_2pi = torch.log(torch.tensor(2 * torch.pi, dtype=z.dtype, device=z.device))
        return torch.logsumexp(self._log_joint(along, total), dim=1) - 0.5 * self.n_latent * log_2pi

    def posterior_covariance(self, z: Tensor, s: Tensor) -> Tensor:
        """Exact Cov[U | z] (n, k, k): within components plus between their means."""
        responsibilities, means, variances = self.components(z, s)
        within = torch.einsum("nc,ckj,ncj,clj->nkl", responsibilities, self.axes, variances, self.axes)
        centred = means - torch.einsum("nc,nck->nk", responsibilities, means)[:, None]
        return within + torch.einsum("nc,nck,ncl->nkl", responsibilities, centred, centred)

    def sample_posterior(self, z: Tensor, s: Tensor, generator: torch.Generator) -> Tensor:
        """One exact draw (n, k) from p(U | z) for every cell."""
        responsibilities, means, variances = self.components(z, s)
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

    def _log_joint(self, along: Tensor, total: Tensor) -> Tensor:
        """Log of pi_c N(z; mu_c, S_c + s^2 I) without the 2 pi, from coordinates along the axes."""
        quadratic = (along.square() / total).sum(-1)
        return self.weights.log() - 0.5 * (quadratic + total.log().sum(-1))
