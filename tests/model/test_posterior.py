"""The direct path and its sampler against exact mixture posteriors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import random_mixture
from scipy import stats

from dice._model.sampler import CellNoise, Posterior, cell_seeds, direct, probe_variance, sample_sde, within_reach


def keys(n, seed=0):
    return CellNoise(torch.as_tensor(cell_seeds([str(i) for i in range(n)], seed)))


def separated_mixture():
    """Three narrow, well separated types in two dimensions."""
    from oracle import ExactMixture

    means = torch.tensor([[0.0, 1.5], [-1.3, -0.8], [1.3, -0.8]]).double()
    return ExactMixture.from_moments(torch.ones(3).double(), means, 0.05 * torch.eye(2).repeat(3, 1, 1).double())


def test_samples_have_the_exact_variance_and_class_probabilities():
    """Variance within 10 %, classes within 0.12 total variation; zero spread would fail both."""
    mixture = separated_mixture()
    s = torch.tensor(1.0).double()
    points = torch.tensor([[0.0, 0.0], [0.5, 0.2], [0.0, 1.4], [-1.0, 0.3]]).double()
    n = 4000
    ratios, distances = [], []
    for index, point in enumerate(points):
        z = point.expand(n, -1)
        draws = sample_sde(mixture, z, s, keys(n, index))
        exact = mixture.posterior_covariance(point[None], s)[0].trace()
        ratios.append(float(torch.cov(draws.T).trace() / exact))
        classes = torch.cdist(draws, mixture.means).argmin(1)
        share = torch.bincount(classes, minlength=3) / n
        distances.append(float((share - mixture.components(point[None], s)[0][0]).abs().sum() / 2))
    assert 0.9 < np.mean(ratios) < 1.1, ratios
    assert max(distances) < 0.12, distances


def test_samples_are_unbiased_for_a_gaussian():
    mixture = random_mixture(n_components=1)
    s = torch.tensor(0.8).double()
    z = torch.tensor([[0.3, -0.2, 1.0, 0.1]]).double().expand(20_000, -1)
    draws = sample_sde(mixture, z, s, keys(len(z)))
    exact = mixture.posterior_covariance(z[:1], s)[0]
    torch.testing.assert_close(draws.mean(0), mixture(z[:1], s)[0], atol=0.03, rtol=0)
    torch.testing.assert_close(torch.cov(draws.T), exact, atol=0.02, rtol=0.1)


def test_probes_estimate_the_posterior_variance():
    mixture = random_mixture(n_latent=12, n_components=4)
    generator = torch.Generator().manual_seed(0)
    u, _ = mixture.sample(500, generator)
    z = u + 0.7 * torch.randn(u.shape, generator=generator)
    s = torch.tensor(0.7).double()
    exact = mixture.posterior_covariance(z, s).diagonal(dim1=1, dim2=2).mean(1)
    estimate = probe_variance(mixture, z, s, keys(500))
    assert float((estimate.mean() / exact.mean() - 1).abs()) < 0.03
    assert float((estimate / exact - 1).abs().median()) < 0.25


@pytest.mark.parametrize("n_samples", [0, 1, 8])
def test_direct_reports_what_was_asked_for(n_samples):
    mixture = random_mixture()
    z = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)).double()
    result = direct(mixture, z, torch.tensor(0.5).double(), keys(10), n_samples=n_samples)
    torch.testing.assert_close(result.mean, mixture(z, torch.tensor(0.5)))
    assert (result.samples is None) if n_samples == 0 else result.samples.shape == (10, n_samples, 4)
    assert result.variance.shape == (10,)
    assert direct(mixture, z, torch.tensor(0.5).double(), keys(10), uncertainty=False).variance is None


def test_credible_regions_cover_and_ranks_are_uniform():
    """Simulation-based calibration: the truth is exchangeable with its posterior samples."""
    mixture = random_mixture(n_latent=3)
    generator = torch.Generator().manual_seed(1)
    n, n_samples = 1500, 39
    u, _ = mixture.sample(n, generator)
    s = torch.tensor(0.6).double()
    y = u + s * torch.randn(u.shape, generator=generator).double()
    samples = direct(mixture, y, s, keys(n), n_samples=n_samples).samples
    mean, covariance = mixture(y, s), mixture.posterior_covariance(y, s)

    def distance(points):
        offset = points - mean
        return torch.einsum("nk,nkl,nl->n", offset, torch.linalg.inv(covariance), offset)

    ranks = sum((distance(samples[:, j]) < distance(u)).long() for j in range(n_samples)).numpy()
    counts = np.bincount(ranks // 4, minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-3, counts
    covered = (ranks < 0.9 * (n_samples + 1)).mean()
    assert abs(covered - 0.9) < 4 * np.sqrt(0.9 * 0.1 / n)


def gaussian(variance=1.0, k=2):
    from oracle import ExactMixture

    return ExactMixture.from_moments(
        torch.ones(1).double(), torch.zeros(1, k).double(), variance * torch.eye(k)[None].double()
    )


def test_noise_beyond_the_largest_level_keeps_its_pull():
    """At noise 10 and beyond, the posterior mean of a standard normal is y / s^2, up to one part in a hundred."""
    y, s = torch.tensor([[3.0, -1.0]] * 4).double(), torch.tensor([5.0, 10.0, 20.0, 1000.0]).double()
    moved, level = within_reach(y, s)
    torch.testing.assert_close(level, torch.tensor([5.0, 10.0, 10.0, 10.0]).double())
    torch.testing.assert_close(moved, y * torch.tensor([[1.0], [1.0], [0.25], [1e-4]]).double())
    mean = direct(gaussian(), y, s, keys(4), uncertainty=False).mean
    torch.testing.assert_close(mean[:2], y[:2] / (1 + s[:2, None] ** 2))
    torch.testing.assert_close(mean[2:], y[2:] / s[2:, None] ** 2, rtol=0.011, atol=0)


def test_probes_of_a_gaussian_are_exact():
    """dD/dy is v / (v + s^2) in every direction, so that any probe tells it; a variance is never negative."""
    y, s = torch.zeros(3, 2).double(), torch.tensor([0.5, 1.0, 3.0]).double()
    found = probe_variance(gaussian(2.0), y, s, keys(3))
    torch.testing.assert_close(found, 2 * s**2 / (2 + s**2))
    assert not probe_variance(lambda z, _: -z, y, s, keys(3)).any()


class Depths:
    """A denoiser that says what it was asked for."""

    def __call__(self, z, s, log_depth=None):
        return z * 0 + (-1 if log_depth is None else log_depth[:, None]) + s

    def variance(self, z, s, noise, log_depth=None):
        return log_depth * 2

    def posterior_sample(self, z, s, noise, log_depth=None):
        return self(z, s, log_depth) + noise.normal(0, z.shape[1])


def test_depth_is_handed_on():
    """To the mean, the draws and the variance, which is not taken from the draws."""
    y, depths = torch.zeros(5, 2), torch.arange(5.0)
    found = direct(Depths(), y, torch.tensor(0.5), keys(5), log_depth=depths, n_samples=2)
    torch.testing.assert_close(found.mean, (depths + 0.5)[:, None].expand(-1, 2))
    torch.testing.assert_close(found.variance, 2 * depths)
    assert not torch.equal(found.samples[:, 0], found.samples[:, 1])
    torch.testing.assert_close(direct(Depths(), y, torch.tensor(0.0), keys(5), uncertainty=False).mean, y - 1)


def test_posteriors_are_scaled_and_joined():
    """Means and samples have the units of latents, variances their square."""
    parts = [Posterior(np.full((n, 2), 3.0), np.full((n, 4, 2), 5.0), np.full(n, 7.0)) for n in (2, 3)]
    scaled = parts[0].map(lambda part, power: part * 10**power)
    assert [float(x.ravel()[0]) for x in (scaled.mean, scaled.samples, scaled.variance)] == [30, 50, 700]
    joined = Posterior.joined(parts)
    assert [tuple(x.shape) for x in (joined.mean, joined.samples, joined.variance)] == [(5, 2), (5, 4, 2), (5,)]
    bare = Posterior.joined([Posterior(np.ones((2, 2)), None, None)] * 2)
    assert (bare.samples, bare.variance) == (None, None)
    assert bare.map(lambda part, power: part).samples is None
