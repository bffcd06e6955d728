"""The linear filter that the default network starts at: the Wiener filter at every depth and noise level.

Principal components are uncorrelated, so that noise of standard deviation s on top turns a latent of variance v into
one of variance v + s^2, and multiplies its filter by v / (v + s^2). The filter is therefore fitted once, at s = 0, by a
regression of the rest of a cell's counts on a part of them. At other levels it follows from this formula.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dice._model.training_data import Rows

#: Standardised log depths are clipped here: nothing was learned beyond.
FARTHEST_DEPTH = 3.0
#: Ridges of the filter, in rows of unit variance. Held-out cells choose; without them the middle one is used. For two
#: profiles in 1,000 cells, k-means of the clean latents was right for .87 with the first and .99 with the fourth. With
#: thousands of cells the ridge hardly matters.
RIDGES = (1e1, 1e2, 1e3, 1e4, 1e5)
#: Smallest posterior variance of a latent as a share of its mean one.
LEAST_VARIANCE = 1e-3
#: Number of depths at which the variance of noisy latents is measured, and the quantile that defines the deepest.
N_DEPTHS, DEEPEST = 8, 0.98
#: Rows within this distance of the mean standardised log depth give the posterior variance.
MIDDLE = 0.5


class LinearFilter(nn.Module):
    """Linear in latents, in latents times depth, and in depth and its square; scaled units.

    Without counts the filter is 1 / (1 + s^2), the filter of latents of unit variance. With the variances of single
    latents the network stayed at the filter and did not learn the two clusters of the paper's Setup 1.
    """

    counted: Tensor
    typical: Tensor
    deepest: Tensor
    target_noise: Tensor
    depth_mean: Tensor
    depth_sd: Tensor
    log_variance: Tensor
    log_variance_slope: Tensor
    posterior_variance: Tensor
    prior_variance: Tensor

    def __init__(self, n_latent: int) -> None:
        super().__init__()
        self.n_latent = n_latent
        for name in ("counted", "typical", "deepest", "target_noise"):
            self.register_buffer(name, torch.zeros(1))
        for name in ("depth_mean", "depth_sd"):
            self.register_buffer(name, torch.ones(2))
        for name in ("log_variance", "log_variance_slope", "posterior_variance", "prior_variance"):
            self.register_buffer(name, torch.ones(n_latent))
        self.linear = nn.Linear(3 * n_latent + 4, n_latent)

    def forward(self, z: Tensor, depth: Tensor, s: Tensor) -> Tensor:
        """Filtered latents (n, k) at standardised depths (n, 2) and noise levels (n or 1, 1)."""
        return self.linear(self._features(z, depth, s))

    def standardised(self, depths: Tensor | None, n: int) -> Tensor:
        """Log depths (n, 2) in units of their spread over the rows; zero without depths."""
        if depths is None:
            return self.depth_mean.new_zeros(n, 2)
        return ((depths - self.depth_mean) / self.depth_sd).clamp(-FARTHEST_DEPTH, FARTHEST_DEPTH)

    def variance(self, s: Tensor, depth: Tensor) -> Tensor:
        """Posterior variance (n, k) that the filter leaves at noise levels (n or 1, 1) and standardised depths (n, 2).

        This is the variance of a Gaussian prior under Gaussian noise. The noise of counts is inverse to depth; its size
        gives the measured variance at the mean depth.
        """
        prior, posterior = self.prior_variance, self.posterior_variance
        counts = prior * posterior / (prior - posterior) * (-self.depth_sd[0] * depth[:, :1]).exp()
        noise = counts + s.square()
        return prior * noise / (prior + noise)

    def weight(self, s: Tensor, depths: Tensor | None) -> Tensor:
        """Weight (n,) of rows at noise levels (n, 1) and log depths (n, 2): inverse to their expected squared error.

        The expected error is that of the filter plus the noise of the target, which is inverse to its depth. Weights
        inverse to the variance give a regression its smallest error. Both are taken for a cell of typical depth with
        the same shares of counts, so that all cells count alike: by their own depths the deepest cells of a reference
        of several technologies would decide.
        """
        if depths is not None:
            depths = depths + (self.typical - torch.logaddexp(depths[:, 0], depths[:, 1]))[:, None]
        depth = self.standardised(depths, len(s))
        expected = self.variance(s, depth).mean(1) + self.target_noise * (-self.depth_sd[1] * depth[:, 1]).exp()
        return (self.posterior_variance.mean() + self.target_noise if self.counted else 1) / expected

    @torch.no_grad()
    def fit(self, rows: Rows, held_out: Rows | None, typical: float | None) -> None:
        """Fit everything in closed form; `typical` is the log depth of a typical cell, None without counts."""
        if typical is None or rows.depths is None:
            self._fit_identity()
            return
        self.counted.fill_(1.0)
        self.typical.fill_(typical)
        self.deepest.copy_(rows.depths[:, 0].quantile(DEEPEST))
        self.depth_mean.copy_(rows.depths.mean(0))
        self.depth_sd.copy_(rows.depths.std(0).clamp_min(1e-3))
        depth, half = (self.standardised(depths, len(rows)) for depths in (rows.depths, rows.half_depths))
        self._fit_variances(rows.noisy, depth[:, 0])
        zero = torch.zeros(1, 1, device=depth.device)
        self._fit_weights(self._features(rows.noisy, depth, zero), rows.target, held_out)
        # Cells of one to three counts have few depths, and none of them may be near the mean.
        middle = depth[:, 0].abs() < max(MIDDLE, float(depth[:, 0].abs().min()) + 1e-6)
        filtered = self(rows.noisy, half, zero)
        products = ((rows.first - filtered) * (rows.second - filtered))[middle].mean(0)
        self.posterior_variance.copy_(products.clamp_min(LEAST_VARIANCE * rows.target.var(0)))
        products = ((rows.first - rows.first.mean(0)) * (rows.second - rows.second.mean(0))).mean(0)
        self.prior_variance.copy_(torch.maximum(products, 1.01 * self.posterior_variance))
        left = (rows.target - self(rows.noisy, depth, zero)).square().mean()
        self.target_noise.copy_((left - self.posterior_variance.mean()).clamp_min(1e-3))

    def _fit_identity(self) -> None:
        for buffer in self.buffers():
            buffer.zero_()
        self.depth_sd.fill_(1.0)
        self.prior_variance.fill_(1.0)
        self.linear.weight.zero_()
        self.linear.weight[:, : self.n_latent].fill_diagonal_(1.0)
        self.linear.bias.zero_()
        self.linear.requires_grad_(False)  # At s = 0 there is no noise to remove.

    def _fit_variances(self, noisy: Tensor, depth: Tensor) -> None:
        """Variance of noisy latents as a log-linear function of depth."""
        parts = depth.argsort().tensor_split(N_DEPTHS)
        logs = torch.stack([noisy[part].var(0).clamp_min(1e-6).log() for part in parts])
        places = torch.stack([depth[part].mean() for part in parts])
        away = (places - places.mean())[:, None]
        slope = (away * logs).sum(0) / away.square().sum().clamp_min(1e-9)
        self.log_variance.copy_(logs.mean(0) - slope * places.mean())
        self.log_variance_slope.copy_(slope)

    def _fit_weights(self, features: Tensor, target: Tensor, held_out: Rows | None) -> None:
        features = torch.cat([features, torch.ones_like(features[:, :1])], dim=1).double()
        gram, product = features.T @ features, features.T @ target.double()
        found = []
        for ridge in RIDGES[len(RIDGES) // 2 :][:1] if held_out is None else RIDGES:
            identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
            weights = torch.linalg.solve(gram + ridge * identity, product)
            self._set(weights)
            found.append((0.0 if held_out is None else self._error(held_out), weights))
        self._set(min(found, key=lambda pair: pair[0])[1])

    def _error(self, rows: Rows) -> float:
        zero = rows.noisy.new_zeros(1, 1)
        return float((rows.target - self(rows.noisy, self.standardised(rows.depths, len(rows)), zero)).square().mean())

    def _set(self, weights: Tensor) -> None:
        self.linear.weight.copy_(weights[:-1].T)
        self.linear.bias.copy_(weights[-1])

    def _features(self, z: Tensor, depth: Tensor, s: Tensor) -> Tensor:
        """Features (n, 3 k + 4) of the linear map."""
        variance = (self.log_variance + self.log_variance_slope * depth[:, :1]).exp()
        z = z * variance / (variance + s.square())
        return torch.cat([z, z * depth[:, :1], z * depth[:, 1:], depth, depth.square()], dim=1)

    def is_sound(self) -> bool:
        """Whether spreads and variances are positive."""
        positive = bool((self.depth_sd > 0).all() and (self.prior_variance > self.posterior_variance).all())
        return positive and bool((self.posterior_variance >= 0).all() and (self.target_noise >= 0).all())
