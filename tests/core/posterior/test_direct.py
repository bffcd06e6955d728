"""The direct path and its sampler against exact mixture posteriors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import random_mixture
from scipy import stats

from dice._core.posterior.direct import deconvolved_mean, direct, probe_variance
from dice._core.posterior.noise import CellNoise, cell_seeds
from dice._core.posterior.sampler import sample_sde


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


def test_deconvolution_reaches_the_oracle():
    """A prior learned from noisy latents gives the mean of the clean ones beneath (method notes, 2.5)."""
    from oracle import ExactMixture

    clean = random_mixture(n_latent=5, n_components=3)
    covariances = torch.einsum("ckj,cj,clj->ckl", clean.axes, clean.variances, clean.axes)
    noisy = ExactMixture.from_moments(clean.weights, clean.means, covariances + 0.3**2 * torch.eye(5).double())
    generator = torch.Generator().manual_seed(0)
    u, _ = clean.sample(2000, generator)
    s = torch.tensor(0.8).double()
    y = u + s * torch.randn(u.shape, generator=generator).double()
    torch.testing.assert_close(deconvolved_mean(noisy, y, s, 0.3), clean(y, s))
    rmse = [float((d - u).square().mean().sqrt()) for d in (clean(y, s), noisy(y, s))]
    assert rmse[0] < rmse[1]


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
