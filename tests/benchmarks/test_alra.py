"""Our own ALRA, against a matrix whose answer is known."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def alra():
    """The module, which is not part of the package."""
    path = Path(__file__).parents[2] / "benchmarks" / "alra.py"
    spec = importlib.util.spec_from_file_location("alra", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dropout(seed=0):
    """Two cell types with a block of genes each; a third of the values is lost, a few stray ones are added."""
    rng = np.random.default_rng(seed)
    types = np.repeat([0, 1], 60)
    truth = np.zeros((120, 40))
    truth[types == 0, :20] = rng.uniform(1, 3, 20)
    truth[types == 1, 20:] = rng.uniform(1, 3, 20)
    measured = np.where(rng.random(truth.shape) < 1 / 3, 0.0, truth * rng.uniform(0.9, 1.1, truth.shape))
    stray = (truth == 0) & (rng.random(truth.shape) < 0.05)
    return truth, np.where(stray, 0.5, measured)


def test_the_rank_is_the_number_of_cell_types(alra):
    assert alra.choose_rank(dropout()[1]) == 2


def test_a_case_by_hand(alra):
    """0.5 is not above the size of the most negative value; what is left gets the mean and spread of 3 and 5."""
    low_rank = np.array([[-1.0], [0.5], [2.0], [4.0], [3.0]])
    measured = np.array([[0.0], [0.0], [3.0], [5.0], [0.0]])
    kept = np.array([2.0, 4.0, 3.0])
    expected = 4 + (kept - 3) * np.std([3, 5], ddof=1) / np.std(kept, ddof=1)
    np.testing.assert_allclose(alra.restore(low_rank, measured).ravel(), [0, 0, *expected])


def test_what_was_measured_stays_positive(alra):
    measured = dropout()[1]
    assert (alra.alra(measured)[measured > 0] > 0).all()


def test_lost_values_come_back(alra):
    truth, measured = dropout()
    lost = (truth > 0) & (measured == 0)
    assert (alra.alra(measured)[lost] > 0).mean() > 0.95


def test_positive_values_keep_their_mean_and_spread(alra):
    _, measured = dropout()
    low_rank = np.where(measured > 0, 2 * measured, 0.0)
    scaled = alra._rescale(low_rank, measured)
    np.testing.assert_allclose(scaled, measured, rtol=1e-6)
