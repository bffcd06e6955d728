"""Ridge and neighbours against their closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from dice._features import regress
from dice._features.regress import PENALTY, Ridge, by_neighbors, kernel, neighbor_weights


@pytest.fixture
def cells():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    return x, np.stack([np.sin(x[:, 0]), x[:, 1] * x[:, 2]], axis=1) + 0.1 * rng.normal(size=(60, 2))


def test_ridge_is_kernel_ridge_in_closed_form(cells):
    x, y = cells
    new, scale = np.random.default_rng(1).normal(size=(9, 4)), np.sqrt(x.var(0).mean())
    inner = kernel(x / scale, x / scale)
    expected = kernel(new / scale, x / scale) @ np.linalg.solve(inner + PENALTY * np.eye(60), y - y.mean(0)) + y.mean(0)
    np.testing.assert_allclose(Ridge(x, y)(new), expected, atol=2e-4)


def test_a_feature_of_few_cells_is_learned_from_many_centres():
    """Rounding errors must not make the normal equations of 1,000 centres indefinite where 100 cells are measured."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2))
    y = np.stack([np.sin(x[:, 0]), np.cos(x[:, 1])], axis=1)
    y[rng.permutation(1000)[100:], 1] = np.nan
    found, known = Ridge(x, y)(x), ~np.isnan(y[:, 1])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, 0], Ridge(x, y[:, :1])(x)[:, 0], atol=1e-6)
    assert np.square(found[known, 1] - y[known, 1]).mean() < 0.5 * y[known, 1].var()


def test_few_centres_are_nearly_as_good(cells, monkeypatch):
    x, y = cells
    whole = Ridge(x, y)(x)
    monkeypatch.setattr(regress, "MOST_CENTRES", 30)
    some = Ridge(x, y)
    assert len(some.centres) == 30
    assert np.corrcoef(some(x).ravel(), whole.ravel())[0, 1] > 0.95


@pytest.mark.parametrize("predict", [lambda x, y: Ridge(x, y)(x), lambda x, y: by_neighbors(x, y, x[:, None])[0]])
def test_missing_values_are_left_out(cells, predict):
    x, y = cells
    partly = y.copy()
    partly[::2, 1] = np.nan
    found, full = predict(x, partly), predict(x, y)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, 0], full[:, 0])
    assert np.abs(found[:, 1] - full[:, 1]).max() > 1e-3


def test_a_feature_that_nobody_has_is_nothing(cells):
    x, y = cells
    y[:, 1] = np.nan
    assert (Ridge(x, y)(x)[:, 1] == 0).all()
    assert (by_neighbors(x, y, x[:, None])[0][:, 1] == 0).all()


def test_neighbours_are_the_nearest(cells):
    x, y = cells
    distances = np.linalg.norm(x[:, None] - x, axis=2)
    nearest = np.argsort(distances, axis=1)[:, : regress.REGRESSION_NEIGHBORS]
    mean, spread = by_neighbors(x, y, x[:, None])
    np.testing.assert_allclose(mean, y[nearest].mean(1))
    np.testing.assert_allclose(spread, y[nearest].std(1), atol=1e-7)


def test_samples_are_averaged(cells):
    x, y = cells
    samples = x[:5, None] + np.random.default_rng(2).normal(size=(5, 3, 4))
    mean, spread = by_neighbors(x, y, samples)
    each = [by_neighbors(x, y, samples[:, [i]]) for i in range(3)]
    np.testing.assert_allclose(mean, np.mean([found for found, _ in each], axis=0))
    # The law of total variance.
    within, between = np.mean([s**2 for _, s in each], axis=0), np.var([found for found, _ in each], axis=0)
    np.testing.assert_allclose(spread, np.sqrt(within + between), atol=1e-7)
    np.testing.assert_allclose(neighbor_weights(samples, x).toarray().sum(1), 1)


def test_the_kernel_is_gaussian_in_the_mean_square_distance():
    a, b = np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([[1.0, 1.0]])
    np.testing.assert_allclose(kernel(a, b), np.exp(-np.array([[2.0], [1.0]]) / (2 * 2)), rtol=1e-6)


def test_ridge_with_all_cells_as_centres_is_scikit_learns():
    from sklearn.kernel_ridge import KernelRidge

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    unit = x / np.sqrt(x.var(0).mean())
    exact = KernelRidge(alpha=PENALTY, kernel="rbf", gamma=1 / 6).fit(unit, y - y.mean(0)).predict(unit) + y.mean(0)
    np.testing.assert_allclose(Ridge(x, y)(x), exact, atol=1e-3)
