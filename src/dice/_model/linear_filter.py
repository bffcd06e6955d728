"""The linear filter at which the default network starts its training: the Wiener filter for any depth and noise level.

The filter is fitted once, without Gaussian noise (s = 0), by a regression of one part of a cell's counts on another
part. Its form at other noise levels is known: principal components are uncorrelated, so Gaussian noise of standard
deviation s turns a latent of variance v into one of variance v + s^2, and multiplies its filter by v / (v + s^2).
"""

from functools import partial

import torch
from torch import Tensor, nn

from dice._model.training_data import Rows

#: Standardised log depths are clipped at this value, because larger values are rare in training.
FARTHEST_DEPTH = 3.0
#: Ridge penalties of the filter, in numbers of rows. The penalty with the smallest held-out error is used or, without
#: held-out cells, the middle one. For 1,000 cells of two profiles, k-means of clean latents was right for .87 of the
#: cells with the first penalty and for .99 with the fourth. With thousands of cells the penalty hardly matters.
RIDGES = (1e1, 1e2, 1e3, 1e4, 1e5)
#: Smallest posterior variance of a latent: this multiple of its variance in the targets, or of the filter's variance.
LEAST_VARIANCE = 1e-3
#: Number of depth groups in which the variance of noisy latents is measured, and the quantile of log depths that stands
#: for the deepest cell.
N_DEPTHS, DEEPEST = 8, 0.98
#: The posterior variance is measured on rows whose standardised log depth is at most this far from the mean.
MIDDLE = 0.5


class LinearFilter(nn.Module):
    """Linear map of latents, latents times log depth, log depth and its square; in scaled units.

    Without counts the filter is 1 / (1 + s^2), as if all latents had variance 1. With the true variance of each latent,
    the network stayed at the filter and did not learn the two clusters of the paper's Setup 1.
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
        """Return filtered latents (n, k) at standardised log depths (n, 2) and noise levels (n or 1, 1)."""
        return self.linear(self._features(z, depth, s))

    def standardised(self, depths: Tensor | None, n: int) -> Tensor:
        """Standardise log depths (n, 2) by their mean and spread in training. Return zeros without depths."""
        if depths is None:
            return self.depth_mean.new_zeros(n, 2)
        return ((depths - self.depth_mean) / self.depth_sd).clamp(-FARTHEST_DEPTH, FARTHEST_DEPTH)

    def variance(self, s: Tensor, depth: Tensor) -> Tensor:
        """Return the posterior variance (n, k) at noise levels (n or 1, 1) and standardised log depths (n, 2).

        Prior and noise are assumed to be Gaussian. The variance of the noise of counts is inverse to depth. This
        variance is scaled so that the posterior variance at the mean depth is the measured variance.
        """
        prior, posterior = self.prior_variance, self.posterior_variance
        counts = prior * posterior / (prior - posterior) * (-self.depth_sd[0] * depth[:, :1]).exp()
        noise = counts + s.square()
        return prior * noise / (prior + noise)

    def weight(self, s: Tensor, depths: Tensor | None) -> Tensor:
        """Return the weight (n,) of rows at noise levels (n, 1) and log depths (n, 2).

        The weight is inverse to the expected squared error of a row. Such weights give a regression its smallest error.
        The expected squared error is the filter's variance plus the noise of the target, which is inverse to the
        target's depth. It is computed as if every cell had the typical depth. Otherwise the deepest cells would
        dominate in a reference of several technologies.
        """
        if depths is not None:
            depths = depths + (self.typical - torch.logaddexp(depths[:, 0], depths[:, 1]))[:, None]
        depth = self.standardised(depths, len(s))
        expected = self.variance(s, depth).mean(1) + self.target_noise * (-self.depth_sd[1] * depth[:, 1]).exp()
        return (self.posterior_variance.mean() + self.target_noise if self.counted else 1) / expected

    @torch.no_grad()
    def fit(self, rows: Rows, held_out: Rows | None, typical: float | None) -> None:
        """Fit all parameters in closed form. `typical` is the log depth of a typical cell, None without counts."""
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
        # If cells have one to three counts, all depths may be far from the mean. Use the nearest depths.
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
        self.linear.requires_grad_(False)  # At s = 0 there is no noise, so the filter must stay the identity.

    def _fit_variances(self, noisy: Tensor, depth: Tensor) -> None:
        """Fit the log variance of noisy latents as a linear function of log depth."""
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
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        found = [torch.linalg.solve(gram + ridge * identity, product) for ridge in RIDGES]
        self._set(found[len(found) // 2] if held_out is None else min(found, key=partial(self._error, held_out)))

    def _error(self, rows: Rows, weights: Tensor) -> float:
        """Set the weights, and return the mean squared error on rows."""
        self._set(weights)
        zero = rows.noisy.new_zeros(1, 1)
        return float((rows.target - self(rows.noisy, self.standardised(rows.depths, len(rows)), zero)).square().mean())

    def _set(self, weights: Tensor) -> None:
        self.linear.weight.copy_(weights[:-1].T)
        self.linear.bias.copy_(weights[-1])

    def _features(self, z: Tensor, depth: Tensor, s: Tensor) -> Tensor:
        """Return the inputs (n, 3 k + 4) of the linear map."""
        variance = (self.log_variance + self.log_variance_slope * depth[:, :1]).exp()
        z = z * variance / (variance + s.square())
        return torch.cat([z, z * depth[:, :1], z * depth[:, 1:], depth, depth.square()], dim=1)

    def is_sound(self) -> bool:
        """Return whether spreads and variances are positive."""
        positive = bool((self.depth_sd > 0).all() and (self.prior_variance > self.posterior_variance).all())
        return positive and bool((self.posterior_variance >= 0).all() and (self.target_noise >= 0).all())
