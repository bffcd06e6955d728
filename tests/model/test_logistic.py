"""The regression against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dice._model.arrays import GENE_STRENGTH, LATENT_STRENGTH, fit_logistic, softmax

RNG = np.random.default_rng(0)
CODES = RNG.integers(3, size=300)
X = RNG.normal(size=(3, 4))[CODES] + RNG.normal(size=(300, 4)) + 5


@pytest.mark.parametrize("strength", [GENE_STRENGTH, LATENT_STRENGTH, 0.01])
def test_probabilities_are_scikit_learns(strength):
    exact = LogisticRegression(C=strength, tol=1e-8, max_iter=1000).fit(X - X.mean(0), CODES)
    found = fit_logistic(X, CODES, 3, strength=strength)
    np.testing.assert_allclose(found(X), exact.predict_proba(X - X.mean(0)), atol=2e-3)
    np.testing.assert_allclose(found(X), softmax(found.logits(X)))


def test_a_class_without_cells_gets_next_to_nothing():
    assert fit_logistic(X, CODES, 4, strength=0.5)(X)[:, 3].max() < 0.01


def test_softmax_of_large_logits():
    np.testing.assert_allclose(softmax(np.array([[1000.0, 1000.0, -1000.0]])), [[0.5, 0.5, 0]])


def test_settings_that_results_depend_on():
    """A change is one of numerics, and belongs into the changelog."""
    assert (GENE_STRENGTH, LATENT_STRENGTH) == (0.1, 0.5)
