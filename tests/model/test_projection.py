"""Standardised genes, loadings that do not know a cell."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from dice._model.pca import Spectrum
from dice._model.projection import CLOSEST, Projection, Standardizer, without_self

RNG = np.random.default_rng(0)
CELLS = np.maximum(RNG.normal(0, 2, size=(9, 6)), 0).astype(np.float32)
CELLS[0, 0], CELLS[1, 1] = 90.0, 70.0
STANDARDIZER = Standardizer(
    mean=np.array([1.0, 30.0, 0.5, 2.0, 0.0, 1.0], dtype=np.float32),
    scale=np.array([1.0, 2.0, 0.5, 1.0, 1.0, 3.0], dtype=np.float32),
    center=RNG.normal(size=6).astype(np.float32),
    cap=10.0,
)
EXACT = np.clip((CELLS - STANDARDIZER.mean) / STANDARDIZER.scale, -10, 10) - STANDARDIZER.center
WEIGHTS = RNG.uniform(0.5, 2, 6).astype(np.float32)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_values_products_and_norms(kind):
    """Also where a stored value, or a zero, lies beyond the cap."""
    assert (np.abs(EXACT + STANDARDIZER.center) == 10).sum() > 5
    x, matrix = STANDARDIZER(kind(CELLS)), RNG.normal(size=(6, 2)).astype(np.float32)
    np.testing.assert_allclose(x.dense(), EXACT, atol=1e-5)
    np.testing.assert_allclose(x @ matrix, EXACT @ matrix, atol=1e-4)
    np.testing.assert_allclose(x.squared_norms(), (EXACT**2).sum(1), rtol=1e-5)
    np.testing.assert_allclose(x.squared_norms(WEIGHTS), (EXACT**2 * WEIGHTS).sum(1), rtol=1e-5)
    some = np.array([4, 1])
    np.testing.assert_allclose(STANDARDIZER.take(some)(kind(CELLS[:, some])).dense(), EXACT[:, some], atol=1e-5)


def test_inner_products_of_cells_with_parts_of_them():
    part = CELLS * (RNG.random(CELLS.shape) < 0.5)
    own = np.clip((part - STANDARDIZER.mean) / STANDARDIZER.scale, -10, 10) - STANDARDIZER.center
    found = STANDARDIZER(sparse.csr_array(part)).inner(STANDARDIZER(sparse.csr_array(CELLS)))
    np.testing.assert_allclose(found, (own * EXACT).sum(1), rtol=1e-4)


influence = Projection.influence.func


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
