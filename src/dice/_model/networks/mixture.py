"""A prior in closed form: a Gaussian mixture. Its posterior under Gaussian noise is also a Gaussian mixture.

This is the ``"gmm"`` preset. Benchmarks and tests compare other networks with this mixture. With the covariances
S_c = Q_c diag(l_c) Q_c', the eigenvalues under noise of level s are l_c + s^2, so every cell may have its own level.
"""

from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from dice._arguments import short_seed
from dice._model.networks import SMALLEST_VARIANCE, Denoiser, Preset
from dice._model.projection import is_orthonormal
from dice._model.sampler import as_column


class MixtureDenoiser(Denoiser):
    """Exact D(z; s) of a Gaussian mixture.

    Parameters
    ----------
    n_latent
        Dimension k of the latent space.
    n_components
        Number C of mixture components.
    """

    kind = "mixture"
    bounds: ClassVar = {"n_components": 1_000}
    presets: ClassVar = {"gmm": Preset(training=None)}

    weights: Tensor
    means: Tensor
    axes: Tensor
    variances: Tensor

    def __init__(self, n_latent: int, n_components: int) -> None:
        super().__init__()
        self.n_latent, self.n_components = n_latent, n_components
        self.register_buffer("weights", torch.full((n_components,), 1 / n_components))
        self.register_buffer("means", torch.zeros(n_components, n_latent))
        self.register_buffer("axes", torch.eye(n_latent).repeat(n_components, 1, 1))
        self.register_buffer("variances", torch.ones(n_components, n_latent))

    @classmethod
    def from_moments(cls, weights: Tensor, means: Tensor, covariances: Tensor) -> Self:
        """Build from weights (C,), means (C, k) and covariances (C, k, k). The result has their float precision."""
        mixture = cls(means.shape[1], means.shape[0]).to(means.dtype)
        variances, axes = torch.linalg.eigh(covariances)
        mixture.weights.copy_(weights / weights.sum())
        mixture.means.copy_(means)
        mixture.variances.copy_(variances.clamp_min(2 * SMALLEST_VARIANCE))
        mixture.axes.copy_(axes)
        return mixture

    @classmethod
    def fit(cls, train: Tensor, held_out: Tensor | None, seed: int) -> tuple[Self, dict[str, list[float]]]:
        """Fit a Gaussian mixture by expectation maximisation, and return it with its history.

        The number of components doubles until the held-out log-likelihood falls. A small ridge keeps the covariances of
        components with few cells invertible.
        """
        from sklearn.mixture import GaussianMixture

        x = train.cpu().numpy().astype(np.float64)
        test = x if held_out is None else held_out.cpu().numpy().astype(np.float64)
        best: Any = None
        history: dict[str, list[float]] = {"n_components": [], "log_likelihood": []}
        for n_components in (1, 2, 4, 8, 16, 32, 64):
            if n_components > 1 and n_components * 10 > len(x):
                break
            model = GaussianMixture(n_components, reg_covar=1e-3, random_state=short_seed(seed), max_iter=200).fit(x)
            likelihood = float(model.score(test))
            history["n_components"].append(float(n_components))
            history["log_likelihood"].append(likelihood)
            if best is not None and likelihood <= max(history["log_likelihood"][:-1]):
                break
            best = model
        moments = (best.weights_, best.means_, best.covariances_)
        return cls.from_moments(*(torch.as_tensor(m) for m in moments)).float().eval(), history

    def is_sound(self) -> bool:
        total = float(self.weights.double().sum())
        positive = bool((self.weights >= 0).all() and (self.variances > SMALLEST_VARIANCE).all())
        return positive and abs(total - 1) < 1e-3 and is_orthonormal(self.axes.numpy()) and super().is_sound()

    def forward(self, z: Tensor, s: Tensor, log_depth: Tensor | None = None) -> Tensor:
        """Return E[U | U + s n = z], the posterior means of the components weighted by their responsibilities."""
        return torch.einsum("nc,nck->nk", *self.components(z, s))

    def components(self, z: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights (n, C) and means (n, C, k) of the posterior mixture of each cell."""
        total = self.variances + as_column(s, z).square()[:, None]
        along = torch.einsum("nck,ckj->ncj", z[:, None] - self.means, self.axes)
        # log pi_c N(z; mu_c, S_c + s^2 I) up to a constant, from coordinates along the eigenvectors.
        log_joint = self.weights.log() - 0.5 * ((along.square() / total).sum(-1) + total.log().sum(-1))
        means = self.means + torch.einsum("ncj,ckj->nck", self.variances / total * along, self.axes)
        return torch.softmax(log_joint, dim=1), means
