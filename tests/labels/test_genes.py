from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from dice._labels.cells import sums_by_group
from dice._labels.genes import contrasts, path_slopes


def test_a_contrast_is_a_label_less_the_mean_of_others():
    others = np.array([[False, True, True], [True, False, False]])
    logits = np.random.default_rng(0).normal(size=3)
    found = contrasts(np.array([0, 2]), others) @ logits
    np.testing.assert_allclose(found, [logits[0] - logits[1:].mean(), logits[2] - logits[0]])


def test_slopes_of_a_linear_function_are_its_matrix():
    rng = np.random.default_rng(0)
    matrix, cells, along = (rng.normal(size=size).astype(np.float32) for size in ((4, 4), (7, 4), (7, 4)))
    found = path_slopes(lambda y: y @ torch.as_tensor(matrix) + 3, cells, along, n_points=1)
    np.testing.assert_allclose(found, along @ matrix.T, atol=1e-5)


def test_slopes_account_for_the_whole_way():
    """Of a polynomial to rounding, of a bent function as well as the points are close."""
    rng = np.random.default_rng(1)
    cells, along = (rng.normal(size=(50, 4)).astype(np.float32) for _ in range(2))

    def missed(function, n_points):
        at = torch.as_tensor(cells)
        added = ((function(at) - function(0 * at)).numpy() * along).sum(1)
        return np.abs((path_slopes(function, cells, along, n_points) * cells).sum(1) - added).max()

    assert missed(lambda y: y**3 - y * y.roll(1, 1), 2) < 1e-5
    assert missed(lambda y: torch.tanh(4 * y), 16) < 0.01 < missed(lambda y: torch.tanh(4 * y), 2)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_sums_by_group(form):
    values, groups = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([1, -1, 1, 0])
    expected = [values[3], values[0] + values[2], np.zeros(3)]
    np.testing.assert_array_equal(sums_by_group(form(values), groups, 3), expected)
    np.testing.assert_array_equal(sums_by_group(form(values > 4), groups, 3).sum(0), [2, 2, 2])
