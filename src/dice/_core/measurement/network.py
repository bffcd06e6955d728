"""The measurement: M(y, depth) = E[clean latents | y at that depth], and the posterior variance around it.

Latents are in PCA units on both sides; depth is the log depth of :mod:`dice._core.measurement.counts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

#: Standardised log depths beyond this are taken as this: nothing was learned there.
FARTHEST_DEPTH = 3.0
#: Ridge of the linear filter, in cells of unit variance: with 32,000 rows any value from 1 to 100 is the same.
RIDGE = 10.0
#: Smallest posterior variance of a latent as a share of its mean one.
LEAST_VARIANCE = 1e-3
#: softplus of this is 1.
SOFTPLUS_ONE = 0.5413248546129181
#: Values beyond this many scales are no clean latents.
LARGEST_VALUE = 1e6


class MeasurementNetwork(nn.Module):
    """A linear filter that depends on depth, a residual MLP that reads the filtered latents, and a variance.

    The filter is the Wiener filter at the typical depth with a term that changes it linearly in log depth; it is fitted
    in closed form, and the MLP starts at zero. The MLP reads what the filter leaves (held-out error on bmmc .264,
    TEA-seq .358, pancreas .329) rather than y itself (.285, .375, .346); width 128 learns what 256 does (.263, .357,
    .335) in half the time.

    Parameters
    ----------
    n_latent
        Number k of latents.
    width
        Hidden width.
    depth
        Number of residual blocks.
    """

    kind: ClassVar[str] = "measurement"
    #: Largest value of each constructor argument but `n_latent`.
    bounds: ClassVar[Mapping[str, int]] = {"width": 1024, "depth": 16}

    scale: Tensor
    depth_mean: Tensor
    depth_sd: Tensor
    base_variance: Tensor

    def __init__(self, n_latent: int, width: int = 128, depth: int = 2) -> None:
        super().__init__()
        self.n_latent, self.width, self.depth = n_latent, width, depth
        for name in ("scale", "depth_mean", "depth_sd"):
            self.register_buffer(name, torch.ones(1))
        self.register_buffer("base_variance", torch.ones(n_latent))
        self.filter = nn.Linear(2 * n_latent + 2, n_latent)
        self.inlet = nn.Linear(n_latent + 2, width)
        self.blocks = nn.ModuleList(ResidualBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.outlet = nn.Linear(width, n_latent)
        self.spread = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, n_latent))

    @property
    def config(self) -> dict[str, int]:
        """Constructor arguments: with the weights, all that is needed to rebuild the network."""
        return {name: getattr(self, name) for name in ("n_latent", *self.bounds)}

    @classmethod
    def empty(cls, config: Mapping[str, int]) -> Self:
        """A network without values: torch's constructors would draw from the global random state."""
        with torch.device("meta"):
            network = cls(**config)
        return network.to_empty(device="cpu")

    def initialize(self, generator: torch.Generator) -> None:
        """Torch's default from `generator`, an MLP that starts at zero and a variance that starts at its mean."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                module.weight.data.uniform_(-bound, bound, generator=generator)
                module.bias.data.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        last = self.spread[-1]
        assert isinstance(last, nn.Linear)
        for layer in (self.outlet, last):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    @torch.no_grad()
    def fit_filter(self, y: Tensor, log_depth: Tensor, first: Tensor, second: Tensor) -> None:
        """Scales, the linear filter and the mean variance, in closed form.

        Parameters
        ----------
        y, log_depth
            Noisy latents (n, k) and their log depths (n,).
        first, second
            Latents (n, k) of two more measurements of the same cells, independent of the first and of each other.
        """
        target = (first + second) / 2
        self.scale.copy_(target.var(0).mean().sqrt().clamp_min(1e-6))
        self.depth_mean.copy_(log_depth.mean())
        self.depth_sd.copy_(log_depth.std().clamp_min(1e-3))
        features = self._features(y / self.scale, self._standardised(log_depth)).double()
        features = torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
        gram = features.T @ features
        gram.diagonal().add_(RIDGE)
        weights = torch.linalg.solve(gram, features.T @ (target / self.scale).double())
        self.filter.weight.copy_(weights[:-1].T)
        self.filter.bias.copy_(weights[-1])
        filtered = self.filter(features[:, :-1].float()) * self.scale
        products = ((first - filtered) * (second - filtered)).mean(0) / self.scale**2
        self.base_variance.copy_(products.clamp_min(LEAST_VARIANCE * target.var(0) / self.scale**2))

    def forward(self, y: Tensor, log_depth: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance (n, k) of the clean latents for noisy ones y (n, k) at log depths (n,)."""
        depth = self._standardised(log_depth)
        filtered = self.filter(self._features(y / self.scale, depth))
        hidden = self.inlet(torch.cat([filtered, depth, depth.square()], dim=1))
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm(hidden)
        # The variance listens to what the mean has learned and does not change it.
        ratio = nn.functional.softplus(self.spread(hidden.detach()) + SOFTPLUS_ONE).clamp_min(LEAST_VARIANCE)
        return self.scale * (filtered + self.outlet(hidden)), self.scale**2 * self.base_variance * ratio

    def mean(self, y: NDArray[np.float32], log_depth: NDArray[np.float32]) -> NDArray[np.float32]:
        """Posterior mean (n, k) of the clean latents of cells, as arrays."""
        with torch.inference_mode():
            return np.asarray(self(torch.as_tensor(y), torch.as_tensor(log_depth))[0])

    def loss(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Squared error of the mean plus that of the variance, for rows of :mod:`dice._core.measurement.rows`."""
        error, excess = self.errors(rows)
        return error + excess

    def errors(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean squared errors of the mean and of the variance, in scaled units.

        The product of two independent errors is the posterior variance of the clean latents without any noise of the
        measurement, on average; each one is noisy, and a squared error, unlike a likelihood, bears negative ones.
        """
        k = self.n_latent
        y, log_depth, first, second = rows[:, :k], rows[:, k], rows[:, k + 1 : 2 * k + 1], rows[:, 2 * k + 1 :]
        mean, variance = self(y, log_depth)
        error = ((first + second) / 2 - mean).square().mean() / self.scale**2
        product = (first - mean.detach()) * (second - mean.detach())
        return error, (product - variance).square().mean() / self.scale**4

    def is_sound(self) -> bool:
        """Whether the weights make a measurement: positive scales and variances, and finite values."""
        if not bool((self.scale > 0) & (self.depth_sd > 0) & (self.base_variance > 0).all()):
            return False
        with torch.inference_mode():
            latents = self.scale * torch.tensor([0.0, 1.0, -10.0])[:, None].expand(-1, self.n_latent)
            values = [self(latents, torch.full((3,), at)) for at in (-20.0, 0.0, 20.0)]
            means, variances = (torch.stack(parts) for parts in zip(*values, strict=True))
        largest = LARGEST_VALUE * self.scale
        return bool((means.abs() < largest).all() and (variances < largest.square()).all())

    def _standardised(self, log_depth: Tensor) -> Tensor:
        standard = (log_depth.reshape(-1, 1) - self.depth_mean) / self.depth_sd
        return standard.clamp(-FARTHEST_DEPTH, FARTHEST_DEPTH)

    @staticmethod
    def _features(y: Tensor, depth: Tensor) -> Tensor:
        """What the filter is linear in (n, 2 k + 2)."""
        return torch.cat([y, y * depth, depth, depth.square()], dim=1)


class ResidualBlock(nn.Module):
    """Residual MLP block with a normalised input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, width)
        self.contract = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.contract(nn.functional.silu(self.expand(self.norm(hidden))))
