"""Labels of groups."""

from __future__ import annotations

import numpy as np

from dice._core.labels.votes import vote


def test_probabilities_are_averaged_and_votes_are_counted():
    probabilities = np.array([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
    votes = vote(probabilities, np.array([0, 0, 0, -1]), 2, 0.1)
    np.testing.assert_array_equal(votes.n_cells, [3, 0])
    np.testing.assert_allclose(votes.probabilities[0], [1.7 / 3, 1.3 / 3, 0])
    np.testing.assert_allclose(votes.shares[0], [1 / 3, 2 / 3, 0])
    np.testing.assert_array_equal(votes.sets[0], [True, True, False])


def test_the_set_is_no_longer_than_it_must_be():
    votes = vote(np.array([[0.92, 0.05, 0.03]]), np.array([0]), 1, 0.1)
    np.testing.assert_array_equal(votes.sets, [[True, False, False]])
    np.testing.assert_array_equal(
        vote(np.array([[0.8, 0.15, 0.05]]), np.array([0]), 1, 0.1).sets, [[True, True, False]]
    )
