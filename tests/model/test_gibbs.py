"""Split Gibbs against closed forms: stationary laws, anisotropic noise, heavy tails, general likelihoods."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import ExactMixture, random_mixture
from scipy import stats

from dice._errors import InputError
from dice._model.gibbs import MAX_ITERATIONS, Moments, fastest_split, rho_schedule, split_gibbs, split_length
from dice._model.networks.paper import NOISE_LEVELS, first_step
from dice._model.sampler import CellNoise, cell_seeds
from dice._model.steps import GaussianStep, LangevinStep, StudentCellStep, StudentGeneStep, draw_gamma
from dice.options import Gibbs


def keys(n):
    return CellNoise(torch.as_tensor(cell_seeds([str(i) for i in range(n)], 0)))


def anisotropic_posterior(mixture, y, noise):
    """Exact mean and covariance of U given y = U + N(0, noise), one cell, by conditioning every component."""
    covariances = torch.einsum("ckj,cj,clj->ckl", mixture.axes, mixture.variances, mixture.axes)
    total = covariances + noise
    gain = covariances @ torch.linalg.inv(total)
    means = mixture.means + torch.einsum("ckl,cl->ck", gain, y - mixture.means)
    within = covariances - gain @ covariances
    density = [
        stats.multivariate_normal(m.numpy(), t.numpy()).logpdf(y.numpy())
        for m, t in zip(mixture.means, total, strict=True)
    ]
    weights = torch.softmax(mixture.weights.log() + torch.as_tensor(np.array(density)), 0)
    mean = weights @ means
    offset = means - mean
    covariance = torch.einsum("c,ckl->kl", weights, within) + torch.einsum("c,ck,cl->kl", weights, offset, offset)
    return mean, covariance


@pytest.fixture
def mixture():
    return random_mixture(n_latent=3)


POINT = torch.tensor([0.4, -0.3, 0.6]).double()


def test_fixed_rho_leaves_the_effective_noise(mixture):
    """Long-run mean and covariance are D(y; s_eff) and s_eff^2 dD/dy with s_eff^2 = s_x^2 + rho^2."""
    n, s_x, rho = 3000, 0.4, 0.5
    y = POINT.expand(n, -1)
    step = GaussianStep(y, torch.full((3,), s_x**2).double(), torch.eye(3).double())
    settings = Gibbs(burn_in=15)
    result = split_gibbs(mixture, step, y, [rho] * 30, keys(n), settings, n_samples=1)
    s_eff = torch.tensor(np.hypot(s_x, rho))
    covariance = mixture.posterior_covariance(POINT[None], s_eff)[0]
    error = (result.mean.mean(0) - mixture(POINT[None], s_eff)[0]).abs()
    assert float(error.max()) < 0.03
    torch.testing.assert_close(torch.cov(result.samples[:, 0].T), covariance, atol=0.02, rtol=0.1)


NOISE = torch.tensor([[0.5, 0.2, 0.0], [0.2, 0.3, -0.1], [0.0, -0.1, 0.2]]).double()


@pytest.mark.parametrize("n_components", [1, 3])
@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_exact_split_agrees_with_the_anisotropic_posterior(n_components, rho):
    mixture = random_mixture(n_latent=3, n_components=n_components)
    n = 3000
    y = POINT.expand(n, -1)
    variances, axes = torch.linalg.eigh(NOISE)
    step = GaussianStep(y, variances, axes)
    n_iterations, burn_in = split_length(float(variances[0]) + rho**2, float(variances[-1]) + rho**2)
    settings = Gibbs(burn_in=burn_in)
    step, start, level = fastest_split(step, rho)
    result = split_gibbs(mixture, step, start, [level] * n_iterations, keys(n), settings, n_samples=1)
    mean, covariance = anisotropic_posterior(mixture, POINT, NOISE + rho**2 * torch.eye(3))
    torch.testing.assert_close(result.mean.mean(0), mean, atol=0.03, rtol=0)
    torch.testing.assert_close(torch.cov(result.samples[:, 0].T), covariance, atol=0.02, rtol=0.12)


def test_isotropic_noise_leaves_nothing_to_split(mixture):
    y = POINT.expand(5, -1)
    step = GaussianStep(y, torch.full((3,), 0.25).double(), torch.eye(3).double())
    step, start, level = fastest_split(step, 0.5)
    result = split_gibbs(mixture, step, start, [level], keys(5), Gibbs(burn_in=0))
    torch.testing.assert_close(result.mean, mixture(y, torch.full((5,), np.sqrt(0.5)).double()))


def gene_model(n, seed=0, d=200, k=3):
    rng = np.random.default_rng(seed)
    loadings = torch.as_tensor(np.linalg.qr(rng.normal(size=(d, k)))[0])
    return rng, loadings


def test_langevin_draws_from_the_gaussian_likelihood_step(mixture):
    """With Gaussian log f the step must leave the conjugate step's law invariant; acceptance is reported."""
    n, s, rho = 2000, 0.5, 0.7
    _, loadings = gene_model(n)
    x = (POINT @ loadings.T).expand(n, -1)
    step = LangevinStep(x, loadings, lambda residual: -residual.square().sum(1) / (2 * s**2), n_moves=80)
    u = torch.zeros(n, 3).double()
    z = step.draw(u, u, torch.tensor([[rho]]).double(), keys(n))
    gain = rho**2 / (rho**2 + s**2)
    torch.testing.assert_close(z.mean(0), gain * POINT, atol=0.04, rtol=0)
    torch.testing.assert_close(z.var(0), torch.full((3,), gain * s**2).double(), atol=0.03, rtol=0)
    assert 0.3 < step.acceptance <= 1


def test_langevin_handles_a_heavy_tailed_likelihood():
    """A Laplace-like log f in one dimension, against numerical integration."""
    n, rho = 4000, 1.0
    loadings = torch.ones(1, 1).double()
    x = torch.full((n, 1), 2.0).double()
    step = LangevinStep(x, loadings, lambda r: -2 * torch.sqrt(1 + r.square()).sum(1), n_moves=120)
    start = torch.zeros(n, 1).double()
    z = step.draw(start, start, torch.tensor([[rho]]).double(), keys(n))
    grid = np.linspace(-6, 8, 20_001)
    density = np.exp(-2 * np.sqrt(1 + (2 - grid) ** 2) - grid**2 / 2)
    density /= density.sum()
    mean = (density * grid).sum()
    assert float(z.mean()) == pytest.approx(mean, abs=0.06)
    assert float(z.var()) == pytest.approx((density * (grid - mean) ** 2).sum(), rel=0.1)


def test_gamma_variables():
    n = 4000
    rate = torch.full((n, 3), 2.0).double()
    for shape in (1.0, 2.5, 500.0):
        draws = draw_gamma(shape, rate, keys(n)).numpy().ravel()
        assert stats.kstest(draws, stats.gamma(shape, scale=0.5).cdf).pvalue > 1e-3


def test_student_t_per_gene_ignores_outliers():
    """A few spoiled genes pull the Gaussian estimate away but not the heavy-tailed one."""
    rng, loadings = gene_model(200)
    truth = torch.as_tensor(rng.normal(size=(200, 3)))
    x = truth @ loadings.T + 0.1 * torch.as_tensor(rng.normal(size=(200, 200)))
    x[:, :10] += 3.0
    prior = ExactMixture.from_moments(torch.ones(1).double(), torch.zeros(1, 3).double(), torch.eye(3)[None].double())
    variances = torch.full_like(x, 0.01)
    heavy = StudentGeneStep(x, loadings, variances, df=4.0)
    gaussian = GaussianStep(x @ loadings, torch.full((3,), 0.01).double(), torch.eye(3).double())
    error = []
    for step in (heavy, gaussian):
        result = split_gibbs(prior, step, x @ loadings, [0.2] * 30, keys(200), Gibbs(burn_in=10))
        error.append(float((result.mean - truth).square().mean().sqrt()))
    assert error[0] < 0.5 * error[1]


def test_student_t_per_cell_equals_its_scale_mixture():
    """With many genes the precision of a cell is known from its residuals: the chain finds it."""
    n, d, df = 300, 1000, 4.0
    rng = np.random.default_rng(0)
    precision = rng.gamma(df / 2, 2 / df, size=n)
    noise = 1 / np.sqrt(precision)
    truth = torch.as_tensor(rng.normal(size=(n, 3)))
    y = truth + torch.as_tensor(noise[:, None] * rng.normal(size=(n, 3)))
    energy = torch.as_tensor(noise**2 * rng.chisquare(d - 3, size=n))
    prior = ExactMixture.from_moments(torch.ones(1).double(), torch.zeros(1, 3).double(), torch.eye(3)[None].double())
    gaussian = GaussianStep(y, torch.ones(3).double(), torch.eye(3).double())
    rho, settings = 2.0, Gibbs(burn_in=20)
    result = split_gibbs(prior, StudentCellStep(gaussian, energy, d, df), y, [rho] * 200, keys(n), settings)
    exact = prior(y, torch.as_tensor(np.hypot(noise, rho)))
    one_level = prior(y, torch.tensor(np.hypot(np.sqrt(df / (df - 2)), rho)))
    error, without = ((mean - exact).square().mean().sqrt() for mean in (result.mean, one_level))
    assert error < 0.04
    assert error < 0.7 * without


def test_schedules():
    np.testing.assert_allclose(rho_schedule((5, 0.5), 100), np.linspace(5, 0.5, 100))
    np.testing.assert_allclose(rho_schedule((5, 0.5), 4, geometric=True), np.geomspace(5, 0.5, 4))
    assert list(rho_schedule(2.0, 3)) == [2, 2, 2]
    assert list(rho_schedule([3.0, 2.0, 1.0], None)) == [3, 2, 1]
    for bad in (-1.0, [], [1.0, np.nan, 2.0], 0.0):
        with pytest.raises(InputError, match="must be positive in split Gibbs"):
            rho_schedule(bad, 3)
    with pytest.raises(InputError, match="leave n_iterations out"):
        rho_schedule([3.0, 2.0, 1.0], 5)


def test_the_papers_schedule_costs_what_it_costs():
    assert sum(first_step(rho) for rho in np.linspace(5, 0.5, 100)) == 30_699
    table = {20: 512, 10: 483, 5: 406, 3: 341, 2: 285, 1: 186, 0.5: 105, 0.1: 21}
    assert {rho: first_step(rho) for rho in table} == table
    assert NOISE_LEVELS[-1] == pytest.approx(13.29, abs=0.01)


def test_moments_are_those_of_numpy():
    states = np.random.default_rng(0).normal(100, 1, size=(7, 4, 3))
    moments = Moments(torch.full((4, 3), 100.0).double())
    for n, state in enumerate(torch.as_tensor(states), start=1):
        moments.add(state)
        np.testing.assert_allclose(moments.mean, states[:n].mean(0))
        np.testing.assert_allclose(moments.variance, states[:n].var(0, ddof=int(n > 1)), atol=1e-12)


def test_a_small_spread_survives_single_precision():
    """A spread of a thousandth of the distance to the origin: a difference of sums of squares would be off by 10 %."""
    states = 100 + 0.1 * np.random.default_rng(0).normal(size=(30, 4, 3))
    moments = Moments(torch.zeros(4, 3))
    for state in states.astype(np.float32):
        moments.add(torch.as_tensor(state))
    np.testing.assert_allclose(moments.variance, states.astype(np.float32).astype(float).var(0, ddof=1), rtol=1e-3)


def test_length_of_chains():
    """The share that is carried over to the power of the burn-in is below the tolerance; chains are bounded."""
    assert split_length(1.0, 1.0) == (8, 2)
    n_iterations, burn_in = split_length(0.5, 1.0)
    assert (n_iterations, burn_in) == (21, 7)
    assert 0.5**7 < 0.01 < 0.5**6
    assert split_length(1e-9, 1.0) == (MAX_ITERATIONS, MAX_ITERATIONS // 3) == (100, 33)
    assert split_length(0.0, 0.0) == (100, 33)


def test_the_start_is_the_posterior_mean_of_a_standard_normal():
    variances, axes = torch.linalg.eigh(NOISE)
    step = GaussianStep(POINT[None], variances, axes)
    exact = torch.linalg.solve(NOISE + 1.25 * torch.eye(3), POINT)
    _, start, _ = fastest_split(step, 0.5)
    torch.testing.assert_close(start[0], exact)
