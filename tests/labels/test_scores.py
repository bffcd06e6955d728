"""Scores of labels by hand, and by scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from dice._labels import summary
from dice._labels.tree import LabelTree


def label_scores_of(truth, meant, given, sets, confident):
    tree = LabelTree.of([str(i) for i in range(meant.shape[1])], {})
    return summary.label_scores_of(truth, meant, given, sets, confident, tree, given).to_dict("records")


def test_scores_by_hand():
    """Two known labels, of which the second stands for two of the reference's; one label that no cell has."""
    truth, given = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 2, -1])
    meant = np.array([[True, False, False], [False, True, True], [False, False, False]])
    sets = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 0, 0]], dtype=bool)
    whole, first, second, nobody = label_scores_of(truth, meant, given, sets, np.array([1, 0, 1, 0, 0], dtype=bool))
    assert (whole["n_cells"], first["n_cells"], second["n_cells"], nobody["n_cells"]) == (5, 2, 3, 0)
    assert (whole["accuracy"], first["accuracy"], second["accuracy"]) == pytest.approx((3 / 5, 1 / 2, 2 / 3))
    assert (whole["coverage"], first["coverage"], second["coverage"]) == pytest.approx((3 / 5, 1 / 2, 2 / 3))
    assert whole["set_size"] == pytest.approx(8 / 5)
    assert (whole["confident"], whole["confident_accuracy"]) == pytest.approx((2 / 5, 1.0))
    assert (first["f1"], second["f1"], nobody["f1"]) == pytest.approx((2 / 3, 2 * 2 / 6, 0))
    assert whole["f1"] == pytest.approx((2 / 3 + 2 / 3) / 3)
    assert np.isnan(nobody["accuracy"])


def test_f1_is_scikit_learns_where_names_agree():
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=200)
    given = np.where(rng.random(200) < 0.6, truth, rng.integers(4, size=200))
    rows = label_scores_of(truth, np.eye(4, dtype=bool), given, np.eye(4, dtype=bool)[given], np.ones(200, dtype=bool))
    assert rows[0]["f1"] == pytest.approx(f1_score(truth, given, average="macro"))
    np.testing.assert_allclose([row["f1"] for row in rows[1:]], f1_score(truth, given, average=None))


def test_f1_of_many_to_one_maps_is_that_of_mapped_labels():
    """Two known labels that the reference calls by one name had an F1 of .42 although all of their cells were right."""
    rng = np.random.default_rng(1)
    truth = rng.integers(4, size=400)
    mapped = np.array([0, 0, 1, 2])[truth]
    given = np.where(rng.random(400) < 0.8, mapped, rng.integers(4, size=400))
    meant = np.eye(4, dtype=bool)[[0, 0, 1, 2]]
    rows = label_scores_of(truth, meant, given, np.eye(4, dtype=bool)[given], np.ones(400, dtype=bool))
    expected = f1_score(mapped, given, average=None, labels=[0, 1, 2])
    assert rows[0]["f1"] == pytest.approx(expected.mean())
    np.testing.assert_allclose([row["f1"] for row in rows[1:]], expected[[0, 0, 1, 2]])


def test_f1_of_one_to_many_maps_merges_names():
    truth, given = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 2, 2, 0])
    meant = np.array([[True, True, False], [False, False, True]])
    rows = label_scores_of(truth, meant, given, np.eye(3, dtype=bool)[given], np.ones(6, dtype=bool))
    merged = np.array([0, 0, 1])[given]
    assert rows[0]["f1"] == pytest.approx(f1_score(truth, merged, average="macro"))
