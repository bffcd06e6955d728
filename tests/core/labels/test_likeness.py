"""Held-out cells made like a query, and what disagreement tells."""

from __future__ import annotations

import numpy as np

from dice._core.blend import blend_labels
from dice._core.labels.classify import fit_logistic, softmax
from dice._core.labels.likeness import disagreement, expected_error, moves, smallest_sets, tempered


def test_moving_logits_is_moving_cells():
    """Classifiers are linear: a shift of cells is a shift of their logits."""
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=300)
    x = (rng.normal(size=(3, 5))[codes] + 0.3 * rng.normal(size=(300, 5))).astype(np.float32)
    classifier = fit_logistic(x, codes, 3, strength=0.5)
    query, sure = x + np.linspace(0, 1, 5, dtype=np.float32), np.eye(3)[codes]
    means = np.stack([x[codes == code].mean(0) for code in range(3)])
    by_cells = classifier.logits(x + moves(sure, query, means)[codes].astype(np.float32))
    by_logits = classifier.logits(x) + moves(sure, classifier.logits(query), classifier.logits(means))[codes]
    np.testing.assert_allclose(by_cells, by_logits, atol=0.02)


def test_a_label_without_cells_stays():
    found = moves(np.array([[1.0, 0.0]] * 95), np.full((95, 2), 3.0), np.zeros((2, 2)))
    np.testing.assert_allclose(found, [[2.85, 2.85], [0, 0]])


def test_disagreement_tells_the_error():
    one, other = np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[0, 1, 1, 1]]
    np.testing.assert_allclose(disagreement([one, other]), [0, 0, 1, 1])
    usual, wrong = np.zeros(100), np.zeros(100, dtype=bool)
    assert expected_error(np.zeros(50), usual, wrong) is None
    assert expected_error(np.empty(0), usual, wrong) is None
    half = np.arange(50) % 2 == 0
    assert expected_error(half, usual, wrong) > 0.5


def test_flattened_until_the_error_is_as_expected():
    probabilities = softmax(4 * np.random.default_rng(0).normal(size=(500, 4)))
    flat = tempered(probabilities, 0.4)
    assert abs(1 - flat.max(1).mean() - 0.4) < 1e-3
    np.testing.assert_array_equal(flat.argmax(1), probabilities.argmax(1))
    assert tempered(probabilities, 0.01) is probabilities
    sets = smallest_sets(flat, 0.1)
    assert abs((flat * sets).sum(1).mean() - 0.9) < 0.01


def test_few_cells_hardly_move_the_weights():
    good, bad = np.array([[0.9, 0.1]]), np.array([[0.2, 0.8]])
    for n, least, most in ((5, 0.5, 0.55), (5000, 0.9, 1)):
        weights = blend_labels([np.repeat(good, n, 0), np.repeat(bad, n, 0)], np.zeros(n, dtype=int))
        assert least < weights[0] < most


def test_the_expected_error_by_hand():
    query, held_out, wrong = np.array([1.0, 0, 1, 0]), np.array([0.0, 0, 0, 1] * 25), np.arange(100) < 5
    error = 2 * np.sqrt(query.var() / 4 + held_out.var() / 100)
    assert query.mean() - held_out.mean() < error
    assert expected_error(query, held_out, wrong) is None
    many = np.tile(query, 100)
    assert expected_error(many, held_out, wrong) == 0.05 + 2 * 0.25
    assert expected_error(np.ones(400), held_out, wrong) == 0.9
    assert expected_error(many, np.empty(0), wrong) is None
    assert expected_error(np.zeros(4), np.zeros(4), np.zeros(4, bool)) is None


def test_probabilities_of_zero_can_be_flattened():
    sure = np.eye(3)[[0, 1]]
    flat = tempered(sure, 0.4)
    assert np.isfinite(flat).all()
    assert 1 - flat.max(1).mean() >= 0.4 - 1e-6
    np.testing.assert_array_equal(tempered(sure, 0.0), sure)


def test_the_smallest_sets_by_hand():
    """The largest probabilities of all cells until 1 - alpha of their number is reached."""
    p = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
    np.testing.assert_array_equal(smallest_sets(p, 0.4), [[True, False, False], [True, False, False]])
    np.testing.assert_array_equal(smallest_sets(p, 0.3), [[True, False, False], [True, True, False]])
    assert smallest_sets(p, 0.0).all()
