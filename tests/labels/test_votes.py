"""Labels of groups."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd

from dice._labels.slots import count_votes, vote, votes_help
from dice._labels.tree import LabelTree


def test_probabilities_are_averaged():
    probabilities = np.array([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
    n_cells, mean = vote(probabilities, np.array([0, 0, 0, -1]), 2)
    np.testing.assert_array_equal(n_cells, [3, 0])
    np.testing.assert_allclose(mean[0], [1.7 / 3, 1.3 / 3, 0])


def test_votes_are_counted_and_the_set_is_no_longer_than_it_must_be():
    probabilities = np.array([[0.92, 0.05, 0.03], [0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.72, 0.2, 0.08], [0.9, 0.1, 0.0]])
    cells = SimpleNamespace(seen=np.array([True, True, True, True, False]))
    model = SimpleNamespace(names=["B", "T", "NK"], tree=LabelTree.learn(["B", "T", "NK"], np.eye(3)))
    groups = pd.Categorical(["a", "b", "b", "c", "d"])
    judged = SimpleNamespace(cells=cells, model=model, probabilities=probabilities)
    voted, table = count_votes(judged, groups, 0.1)
    np.testing.assert_allclose(table["shares"][1], [0.5, 0.5, 0])
    assert table["set"].tolist()[:3] == ["B", "B | T", "B | T"]
    assert table["label"].tolist() == ["B", "B", "B", ""]
    assert pd.isna(voted[4])


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
