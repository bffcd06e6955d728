"""Weights of mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from dice._features import regress
from dice._features.regress import best_weights, blend_values


def errors(seed, n=200, n_features=3):
    """Errors (J, n, F) of three candidates, the last of which is worst."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, n_features))
    return np.stack([common + scale * rng.normal(size=(n, n_features)) for scale in (0.5, 1.0, 3.0)])


@pytest.mark.parametrize("pseudo", [0.0, 100.0])
def test_values_have_the_smallest_error_that_there_is(pseudo, monkeypatch):
    monkeypatch.setattr(regress, "BLEND_CELLS", pseudo)
    residuals = errors(0)
    weights = blend_values(residuals)
    np.testing.assert_allclose(weights.sum(1), 1)
    assert (weights >= 0).all()
    for f, found in enumerate(weights):
        pull = pseudo * np.square(residuals[:, :, f]).mean()

        def loss(w, f=f, pull=pull):
            return np.square(w @ residuals[:, :, f]).sum() + pull * np.square(w - 1 / 3).sum()

        bounds, whole = [(0, 1)] * 3, {"type": "eq", "fun": lambda w: w.sum() - 1}
        best = minimize(loss, np.full(3, 1 / 3), bounds=bounds, constraints=whole, tol=1e-12)
        assert loss(found) <= best.fun * (1 + 1e-6)


def test_cells_without_a_value_have_no_say():
    residuals = errors(1)
    more = np.concatenate([residuals, np.full_like(residuals, np.nan)], axis=1)
    np.testing.assert_allclose(blend_values(more), blend_values(residuals))


def test_few_cells_cannot_tell_candidates_apart():
    good, bad = np.full((1, 2, 1), 0.01), np.full((1, 2, 1), 1.0)
    few = blend_values(np.concatenate([good, bad]))
    many = blend_values(np.concatenate([good.repeat(10_000, 1), bad.repeat(10_000, 1)]))
    assert few[0, 0] < 0.6
    assert many[0, 0] > 0.95


def test_features_without_errors_get_equal_weights():
    np.testing.assert_allclose(blend_values(np.zeros((4, 10, 2))), 0.25)


def test_weights_without_a_sum_are_those_of_scipy():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 6))
    found = best_weights(np.repeat((x.T @ x)[None], 6, 0), (x.T @ y).T)
    for f in range(6):
        np.testing.assert_allclose(found[f], nnls(x, y[:, f])[0], atol=1e-9)


def test_a_feature_that_nobody_measured_has_equal_weights():
    residuals = errors(3)
    residuals[:, :, 1] = np.nan
    weights = blend_values(residuals)
    np.testing.assert_allclose(weights[1], 1 / 3)
    np.testing.assert_allclose(weights[[0, 2]], blend_values(errors(3))[[0, 2]])
