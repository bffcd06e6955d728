"""Loadings that do not know a cell, against loadings that were computed without it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dice._model.leave_one_out import CLOSEST, influence, without_self
from dice._model.projection import Spectrum


def projected(singular_values, k):
    """Singular values and bulk of a projection on k latents."""
    spectrum = Spectrum(None, None, np.array(singular_values), None)
    return SimpleNamespace(singular_values=spectrum.singular_values, n_latent=k, bulk=spectrum.bulk(k))


def test_influence_by_hand():
    """The bulk weighs eigenvalues by themselves; those that are too close are held at a distance."""
    bulk = (16 + 1) / (4 + 1)
    weights = influence(projected([10.0, 5.0, 2.1, 2.0, 1.0], 3))
    np.testing.assert_allclose(weights, 1 / (np.array([100, 25, 4.41]) - bulk))
    np.testing.assert_allclose(influence(projected([10.0, 2.0, 2.0], 2)), 1 / np.array([96, CLOSEST * 100]))
    np.testing.assert_allclose(influence(projected([3.0, 2.0], 2)), 1 / np.array([9.0, 4.0]))


def test_latents_are_those_of_loadings_without_the_cell():
    """To first order, for one latent: several would also turn within their span, which changes no distance."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 1)) @ rng.normal(size=(1, 300)) + rng.normal(size=(120, 300))
    _, singular_values, right = np.linalg.svd(x, full_matrices=False)
    loadings, part = right[:1].T, x * (rng.random(x.shape) < 0.5)
    weight, own, energy = influence(projected(singular_values, 1)), x @ loadings, (x**2).sum(1)
    for y, rows in ((own, x), (part @ loadings, part)):
        honest = without_self(y, own, (rows * x).sum(1), energy, weight)
        exact = []
        for i in range(len(x)):
            others = np.linalg.svd(np.delete(x, i, 0), full_matrices=False)[2][:1].T
            exact.append(rows[i] @ others * np.sign((others * loadings).sum(0)))
        error, before = (np.sqrt(np.mean((z - exact) ** 2)) for z in (honest, y))
        assert error < 0.2 * before, (error, before)


def test_by_hand_for_one_latent():
    """honest = own / (1 + residual w); a part loses what it shares with the rest of the cell."""
    found = without_self(np.array([[2.0]]), np.array([[3.0]]), np.array([10.0]), np.array([13.0]), np.array([0.25]))
    assert found[0, 0] == pytest.approx(2 - (10 - 6) * 0.25 * 3 / (1 + 4 * 0.25))
    rounded = without_self(np.array([[3.0]]), np.array([[3.0]]), np.array([9.0]), np.array([8.9]), np.array([9.0]))
    assert rounded[0, 0] == pytest.approx(3.0)
