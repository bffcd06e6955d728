"""Conformal quantiles, and coverage of cells that are exchangeable."""

from __future__ import annotations

import numpy as np
import pytest

from dice._features.regress import SMALLEST_SPREAD, Spread, View, conformal_quantile
from dice._features.transfer import FeatureModel
from dice._model.arrays import correlations


def test_the_quantile_is_the_one_of_split_conformal():
    scores = np.random.default_rng(0).permutation(np.arange(1.0, 100.0))[:, None]
    # ceil(100 * .9) = 90 of 99.
    assert conformal_quantile(scores, 0.1) == 90
    assert conformal_quantile(scores, 0.005) == np.inf
    assert conformal_quantile(scores[:9], 0.1) == scores[:9].max()
    assert conformal_quantile(scores[:8], 0.1) == np.inf


def test_scores_that_are_missing_do_not_count():
    scores = np.arange(1.0, 41.0).reshape(20, 2)
    scores[10:, 1] = np.nan
    found = conformal_quantile(scores, 0.2)
    assert found[0] == scores[16, 0]
    assert found[1] == scores[8, 1]


def test_coverage_is_exact_on_average():
    rng, alpha, m = np.random.default_rng(1), 0.2, 24
    scores = rng.exponential(size=(m, 20_000))
    covered = rng.exponential(size=20_000) <= conformal_quantile(scores, alpha)
    # Exchangeable scores are covered with probability ceil((m + 1)(1 - alpha)) / (m + 1).
    assert covered.mean() == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 20_000))


def test_spread_is_learned():
    rng = np.random.default_rng(2)
    doubts = rng.uniform(0, 2, size=(2, 5000, 1))
    size = 0.3 + 0.7 * doubts[0]
    spread = Spread(size * rng.choice([-1, 1], size=size.shape), doubts)
    np.testing.assert_allclose(spread.shares[0], [0.3, 0.7, 0], atol=1e-3)
    np.testing.assert_allclose(spread(doubts), size, rtol=1e-2)
    assert spread(np.zeros((2, 1, 1)))[0, 0] >= SMALLEST_SPREAD * size.mean()


def test_correlations_are_those_of_numpy():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 50, 3))
    b[:10, 1] = np.nan
    a[:, 2] = 1.0
    found = correlations(a, b)
    assert found[0] == pytest.approx(np.corrcoef(a[:, 0], b[:, 0])[0, 1])
    assert found[1] == pytest.approx(np.corrcoef(a[10:, 1], b[10:, 1])[0, 1])
    assert np.isnan(found[2])


def seen(n, seed):
    """Latents, and two features: one of them with more noise on one side, one nothing but noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    noise = np.where(x[:, 1] > 0, 0.6, 0.1)
    values = np.stack([10 + 5 * (x[:, 0] + noise * rng.normal(size=n)), rng.normal(size=n)], axis=1)
    return View(x, x, x[:, None] + 0.05 * rng.normal(size=(n, 2, 3))), values


@pytest.fixture(scope="module")
def model():
    cells, values = seen(900, 0)
    fit, calibration = np.arange(800), np.arange(800, 900)
    folds = [(fit[fit % 4 != i], fit[fit % 4 == i]) for i in range(4)]
    return FeatureModel(cells, values, fit, calibration, folds, 0.1)


def test_intervals_hold_and_are_narrow_where_the_cell_is_known(model):
    cells, values = seen(4000, 1)
    mean, half = model(cells)
    covered = np.abs(values - mean) <= half
    np.testing.assert_allclose(covered.mean(0), 0.9, atol=0.03)
    noisy = cells.y[:, 1] > 0
    assert half[noisy, 0].mean() > 1.5 * half[~noisy, 0].mean()
    assert correlations(mean, values)[0] > 0.85


def test_noise_is_called_useless(model):
    assert list(model.judged.useless) == [False, True]
    assert model.judged.correlation[0] > 0.85
    assert list(model.judged.n_cells) == [900, 900]
    assert model.judged.held_out_width[0] < 0.6 * model.judged.marginal_width[0]


def test_units_do_not_matter(model):
    cells, values = seen(900, 0)
    fit = np.arange(800)
    folds = [(fit[fit % 4 != i], fit[fit % 4 == i]) for i in range(4)]
    other = FeatureModel(cells, 100 * values - 7, fit, np.arange(800, 900), folds, 0.1)
    new = seen(50, 2)[0]
    np.testing.assert_allclose(other(new)[0], 100 * model(new)[0] - 7, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(other(new)[1], 100 * model(new)[1], rtol=1e-3)


def test_no_cells_have_no_features(model):
    mean, half = model(seen(0, 3)[0])
    assert mean.shape == half.shape == (0, 2)


def test_the_spread_has_a_floor():
    """A twentieth of the mean error, also where doubts are smaller than any that were seen; never zero."""
    rng = np.random.default_rng(0)
    doubts = rng.uniform(1, 3, size=(1, 400, 2))
    errors = doubts[0] * rng.normal(size=(400, 2)) * [1.0, 0.0]
    spread = Spread(errors, doubts)
    np.testing.assert_allclose(spread.least, [SMALLEST_SPREAD * np.abs(errors[:, 0]).mean(), 1e-12])
    np.testing.assert_allclose(spread(np.zeros((1, 1, 2))), [spread.least], rtol=0.3)
    spread.shares, spread.least = np.array([[0.0, 1.0]]), np.array([0.5])
    np.testing.assert_allclose(spread(np.array([[[0.1], [2.0]]])), [[0.5], [2.0]])
    nobody = Spread(np.full((3, 1), np.nan), np.ones((1, 3, 1)))
    assert (nobody(np.ones((1, 3, 1))) == 1e-12).all()
