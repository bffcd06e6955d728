"""The oracle itself, against definitions that do not share its formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import ExactMixture, random_mixture
from scipy import stats


@pytest.fixture
def mixture() -> ExactMixture:
    return random_mixture()


@pytest.fixture
def points() -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(1).normal(size=(6, 4)))


def covariances(mixture: ExactMixture) -> np.ndarray:
    return torch.einsum("ckj,cj,clj->ckl", mixture.axes, mixture.variances, mixture.axes).numpy()


def test_density_equals_scipy(mixture, points):
    s = 0.7
    expected = sum(
        weight * stats.multivariate_normal(mean, cov + s**2 * np.eye(4)).pdf(points.numpy())
        for weight, mean, cov in zip(mixture.weights.numpy(), mixture.means.numpy(), covariances(mixture), strict=True)
    )
    density = mixture.log_prob(points, torch.tensor(s)).exp().numpy()
    np.testing.assert_allclose(density, expected, rtol=1e-6)


def test_denoiser_is_tweedies_formula(mixture, points):
    """D(z; s) = z + s^2 grad log p_s(z), the gradient taken by automatic differentiation."""
    z = points.clone().requires_grad_()
    s = torch.tensor(0.6, dtype=torch.float64)
    (score,) = torch.autograd.grad(mixture.log_prob(z, s).sum(), z)
    torch.testing.assert_close(mixture(points, s), points + s**2 * score)


def test_covariance_is_second_order_tweedie(mixture, points):
    s = torch.tensor(0.6, dtype=torch.float64)
    for point, covariance in zip(points, mixture.posterior_covariance(points, s), strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda z: mixture(z[None], s)[0], point)
        torch.testing.assert_close(covariance, s**2 * jacobian)


def test_single_component_is_the_gaussian_posterior(points):
    covariance = torch.as_tensor(np.diag([2.0, 1.0, 0.5, 0.1]) + 0.05)
    mean = torch.ones(1, 4, dtype=torch.float64)
    prior = ExactMixture.from_moments(torch.ones(1).double(), mean, covariance[None])
    gain = covariance @ torch.linalg.inv(covariance + 0.25 * torch.eye(4))
    expected = mean + (points - mean) @ gain.T
    torch.testing.assert_close(prior(points, torch.tensor(0.5)), expected)


def test_posterior_samples_have_the_posterior_moments(mixture, points):
    n = 40_000
    s = torch.tensor(0.8, dtype=torch.float64)
    point = points[:1].expand(n, -1)
    draws = mixture.sample_posterior(point, s, torch.Generator().manual_seed(0))
    covariance = mixture.posterior_covariance(points[:1], s)[0]
    error = (draws.mean(0) - mixture(points[:1], s)[0]) / (covariance.diagonal() / n).sqrt()
    assert error.abs().max() < 4.5
    torch.testing.assert_close(torch.cov(draws.T), covariance, atol=0.02, rtol=0.05)


def test_every_cell_may_have_its_own_noise(mixture, points):
    s = torch.linspace(0.1, 2.0, len(points), dtype=torch.float64)
    each = torch.cat([mixture(p[None], level) for p, level in zip(points, s, strict=True)])
    torch.testing.assert_close(mixture(points, s), each)


def test_limits_of_the_noise(mixture, points):
    torch.testing.assert_close(mixture(points, torch.tensor(1e-6)), points, atol=1e-8, rtol=0)
    prior_mean = mixture.weights @ mixture.means
    far = mixture(points, torch.tensor(1e6))
    torch.testing.assert_close(far, prior_mean.expand_as(far), atol=1e-6, rtol=0)


def test_prior_samples_come_from_their_components(mixture):
    draws, chosen = mixture.sample(20_000, torch.Generator().manual_seed(0))
    share = torch.bincount(chosen, minlength=3) / len(chosen)
    torch.testing.assert_close(share.double(), mixture.weights, atol=0.02, rtol=0)
    for component in range(3):
        own = draws[chosen == component]
        torch.testing.assert_close(own.mean(0), mixture.means[component], atol=0.05, rtol=0)


@pytest.mark.parametrize(("n", "tried"), [(19, [1]), (20, [1, 2]), (39, [1, 2]), (40, [1, 2, 4])])
def test_components_have_ten_cells_on_average(n, tried):
    """Four groups far apart: more components are better, as long as there are cells for them."""
    rng = np.random.default_rng(0)
    x = 100 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[np.arange(n) % 4] + rng.normal(size=(n, 2))
    _, history = ExactMixture.fit(torch.as_tensor(x), None, 0)
    assert history["n_components"] == tried
