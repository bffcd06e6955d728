"""Labels of groups."""

from __future__ import annotations

import numpy as np

from dice._labels.slots import vote, votes_help


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


def test_votes_help_where_groups_know_labels_and_not_where_they_are_random():
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=500)
    groups = labels * 5 + rng.integers(5, size=500)
    unsure = np.full((500, 4), 0.1) + 0.6 * np.eye(4)[labels]
    assert votes_help(unsure, groups, np.repeat(np.arange(4), 5))
    shuffled = rng.permutation(groups)
    voted = np.array([np.bincount(labels[shuffled == group], minlength=4).argmax() for group in range(20)])
    assert not votes_help(unsure, shuffled, voted)
    assert not votes_help(unsure, np.full(500, -1), voted)


def test_votes_that_change_more_labels_than_are_expected_to_be_wrong_do_not_help():
    """On one pair votes had an accuracy of .79 where the cells' own labels had .91."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=500)
    groups = labels * 5 + rng.integers(5, size=500)
    # A fifth of the cells is in a group of another label.
    groups[::5] = rng.permutation(groups[::5])
    voted = np.array([np.bincount(labels[groups == group], minlength=4).argmax() for group in range(20)])
    probabilities = {
        error: np.full((500, 4), error / 3) + (1 - error * 4 / 3) * np.eye(4)[labels] for error in (0.1, 0.3)
    }
    assert not votes_help(probabilities[0.1], groups, voted)
    assert votes_help(probabilities[0.3], groups, voted)
