"""Standardised chunks, sparse beside dense, by the definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dice._model.standardize import Standardizer

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
    assert len(x) == 9
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
