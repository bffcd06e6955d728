"""A tree of labels: its shape, and error rates that hold."""

from __future__ import annotations

import numpy as np
import pytest

from dice import DiceError
from dice._labels.tree import UNRESOLVED, LabelTree

LABELS = ["naive", "memory", "mono", "dc"]
PARENTS = {"naive": "T", "memory": "T", "mono": "myeloid", "dc": "myeloid", "T": "immune"}


def cells(n, seed, noise=1.5):
    """Exact posterior probabilities of four labels, two pairs of which are alike."""
    rng = np.random.default_rng(seed)
    means = np.array([[0, 0], [1.5, 0], [0, 6], [1.5, 6]], dtype=float)
    codes = rng.integers(4, size=n)
    x = means[codes] + rng.normal(size=(n, 2))
    logits = -np.square(x[:, None] - means).sum(2) / 2 * noise
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True), codes


@pytest.fixture
def tree():
    return LabelTree.of(LABELS, PARENTS)


def test_the_tree_of_a_mapping(tree):
    assert tree.names == ("naive", "memory", "mono", "dc", "T", "immune", "myeloid", UNRESOLVED)
    assert [tree.names[node] for node in tree.path(0)] == ["naive", "T", "immune", UNRESOLVED]
    assert tree.members[tree.names.index("myeloid")].tolist() == [False, False, True, True]
    assert tree.members[-1].all()
    assert tree.depths[[0, 2]].tolist() == [3, 2]


def test_labels_that_are_confused_are_joined_first():
    confusion = np.array([[0.7, 0.3, 0, 0], [0.2, 0.8, 0, 0], [0, 0.01, 0.9, 0.1], [0, 0, 0.1, 0.9]])
    tree = LabelTree.learn(LABELS, confusion)
    assert tree.names[4:] == ("naive | memory", "mono | dc", UNRESOLVED)
    assert len(LabelTree.learn(["a", "b"], np.eye(2)).names) == 3
    many = LabelTree.learn([f"type {i}" for i in range(12)], np.eye(12) * 0.5 + 0.5 / 12)
    assert len(set(many.names)) == len(many.names), "names of nodes are unique"


def test_a_node_is_the_smallest_that_is_likely_enough(tree):
    p = np.array([[0.5, 0.45, 0.05, 0.0], [0.95, 0.03, 0.01, 0.01], [0.3, 0.2, 0.3, 0.2]])
    assert [tree.names[node] for node in tree.nodes(p, 0.9)] == ["T", "naive", UNRESOLVED]
    assert [tree.names[node] for node in tree.nodes(p, 0.0)] == ["naive", "naive", "naive"]
    assert tree.nodes(p, 1.0).tolist() == [7, 7, 7]
    np.testing.assert_allclose(tree.probability(p, tree.nodes(p, 0.9)), [0.95, 0.95, 1.0])


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
def test_calibrated_labels_are_wrong_as_often_as_asked(tree, alpha, noise):
    """Over many splits the error rate is at most alpha, for classifiers that are too sure and too modest."""
    errors = []
    for seed in range(40):
        p, codes = cells(600, seed, noise)
        threshold = tree.calibrated(p[:300], codes[:300], alpha)
        nodes = tree.nodes(p[300:], threshold)
        errors.append(np.mean(~tree.members[nodes, codes[300:]]))
    # Three standard errors of the mean of 40 splits with 300 calibration and 300 other cells.
    assert np.mean(errors) <= alpha + 3 * np.sqrt(alpha * (1 - alpha) * 2 / 300 / 40)
    # Two of four labels are right at least: the rate is used up unless even the leaves are right more often.
    p, codes = cells(6000, 99, noise)
    leaf_error = np.mean(p.argmax(1) != codes)
    assert np.mean(errors) >= min(alpha, leaf_error) - 0.02


def test_few_calibration_cells_promise_nothing(tree):
    p, codes = cells(8, 0)
    assert (tree.nodes(p, tree.calibrated(p, codes, 0.1)) == len(tree.names) - 1).all()


@pytest.mark.parametrize("alpha", [0.02, 0.1])
def test_expected_errors_of_exact_probabilities_come_true(tree, alpha):
    p, codes = cells(4000, 1, noise=1.0)
    nodes = tree.nodes(p, tree.expected(p, alpha))
    assert np.mean(~tree.members[nodes, codes]) == pytest.approx(alpha, abs=0.02)


@pytest.mark.parametrize(
    ("hierarchy", "message"),
    [
        ({"nobody": "T"}, r"\['nobody'\], which are neither labels"),
        ({"naive": "memory"}, r"\['memory'\] in `hierarchy` are also labels"),
        ({"naive": "T", "T": "U", "U": "T"}, "has a cycle"),
        ({"naive": "T", "U": "U"}, "has a cycle"),
    ],
)
def test_a_mapping_that_is_no_tree_is_refused(hierarchy, message):
    with pytest.raises(DiceError, match=message):
        LabelTree.of(LABELS, hierarchy)


def test_a_shift_moves_the_threshold_from_calibrated_to_expected(tree):
    (p, _), (known, codes) = cells(500, 0), cells(500, 1, noise=1.0)
    ends = [tree.threshold(p, known, codes, 0.1, strength) for strength in (0.0, 1.0)]
    assert ends == [tree.calibrated(known, codes, 0.1), tree.expected(p, 0.1)]
    assert ends[0] != ends[1]
    for strength in (0.2, 0.5, 0.9):
        between = ends[0] + strength * (ends[1] - ends[0])
        assert tree.threshold(p, known, codes, 0.1, strength) == pytest.approx(between)
