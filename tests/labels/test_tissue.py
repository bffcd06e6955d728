"""Labels of cells with known positions in a tissue."""

from __future__ import annotations

import numpy as np
import pytest

from dice._labels.cells import TISSUE_NEIGHBORS, with_tissue


def tissue(n=200, seed=0):
    """Two layers of cells, and probabilities that are right on the average."""
    rng = np.random.default_rng(seed)
    positions = rng.uniform(size=(n, 2))
    layer = (positions[:, 0] > 0.5).astype(int)
    right = np.clip(rng.normal(0.7, 0.15, n), 0.05, 0.95)
    return positions, layer, np.where(layer[:, None] == [0, 1], right[:, None], 1 - right[:, None])


def test_layers_help_and_a_mixture_does_not():
    positions, layer, probabilities = tissue()
    found, weight = with_tissue(probabilities, positions)
    assert 0.6 < weight <= 1
    assert (found.argmax(1) == layer).mean() > (probabilities.argmax(1) == layer).mean()
    shuffled = np.random.default_rng(1).permutation(positions)
    mixed, without = with_tissue(probabilities, shuffled)
    assert 0 <= without < 0.2
    for one in (found, mixed):
        np.testing.assert_allclose(one.sum(1), 1)


def test_neighbours_are_averaged_by_their_agreement():
    positions, _, probabilities = tissue(60)
    found, weight = with_tissue(probabilities, positions)
    between = np.linalg.norm(positions[:, None] - positions, axis=2)
    np.fill_diagonal(between, np.inf)
    around = probabilities[between.argsort(1)[:, :TISSUE_NEIGHBORS]].mean(1)
    np.testing.assert_allclose(found, (probabilities + weight * around) / (1 + weight))
    own, others = probabilities.argmax(1), around.argmax(1)
    agreed, chance = (own == others).mean(), sum((own == c).mean() * (others == c).mean() for c in (0, 1))
    assert weight == pytest.approx((agreed - chance) / (1 - chance))


def test_neighbours_that_disagree_have_no_weight():
    """On a chain of alternating labels, the two neighbours always differ: kappa is negative, and nothing changes."""
    positions = np.array([[0.0, 0.0], [0.0, 1.0]])
    probabilities = np.array([[0.9, 0.1], [0.1, 0.9]])
    found, weight = with_tissue(probabilities, positions)
    assert weight == 0
    np.testing.assert_array_equal(found, probabilities)


def test_few_cells_and_one_label():
    single = np.array([[0.8, 0.2]])
    assert with_tissue(single, np.zeros((1, 2))) == (single, 0.0)
    alike = np.array([[0.8, 0.2], [0.6, 0.4]])
    found, weight = with_tissue(alike, np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert weight == 0  # Kappa is not defined for one label; scikit-learn warned of it.
    np.testing.assert_array_equal(found, alike)
