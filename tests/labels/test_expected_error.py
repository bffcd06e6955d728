"""Thresholds that mean an error rate."""

from __future__ import annotations

import numpy as np
import pytest

from dice._labels.sets import (
    confident_from,
    error_ratio,
    expected_error,
    joint_sets,
    set_threshold,
    tempered,
    widened,
    with_most_likely,
)
from dice._labels.views import shift_strength
from dice._model.arrays import softmax


def two_labels(probability, right):
    probability = np.asarray(probability, dtype=float)
    return np.stack([probability, 1 - probability], axis=1), np.where(right, 0, 1)


def test_sets_hold_the_most_likely_label():
    """Sets of every class by itself may lack it, and others may be empty."""
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    sets = np.array([[False, True, False], [False, False, False]])
    np.testing.assert_array_equal(with_most_likely(sets, probabilities), [[True, True, False], [False, False, True]])
    assert not sets[1].any()
    assert with_most_likely(sets[:0], probabilities[:0]).shape == (0, 3)


def test_few_calibration_cells_promise_nothing():
    for n, expected in ((8, np.inf), (9, 0.9)):
        assert confident_from(*two_labels([0.9] * n, [True] * n), 0.1) == expected


def test_equally_likely_cells_are_confident_together():
    probability, right = [0.9] * 10 + [0.8] * 10, [True] * 10 + [True] * 8 + [False] * 2
    assert confident_from(*two_labels(probability, right), 0.1) == 0.9
    assert confident_from(*two_labels(probability, right), 0.15) == 0.8


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_the_share_of_wrong_labels_is_as_promised(alpha):
    """Over many calibrations, on average; probabilities need not be right for that."""
    rng = np.random.default_rng(0)
    wrong = []
    for _ in range(300):
        p = rng.uniform(0.5, 1, size=1200)
        cells, codes = two_labels(p, rng.random(1200) < p**2)
        least = confident_from(cells[:200], codes[:200], alpha)
        called = p[200:] >= least
        wrong.append((codes[200:][called] == 1).mean() if called.any() else 0)
    assert np.mean(wrong) < alpha + 0.01


def test_whatever_is_not_confident_has_rivals():
    probabilities = np.array([[0.9, 0.08, 0.02], [0.5, 0.1, 0.4], [0.45, 0.44, 0.11]])
    sets = np.array([[True, False, False], [True, False, False], [True, True, False]])
    confident, wide = widened(sets, probabilities, 0.8)
    np.testing.assert_array_equal(confident, [True, False, False])
    np.testing.assert_array_equal(wide, [[True, False, False], [True, False, True], [True, True, False]])


def test_flattened_until_the_error_is_as_expected():
    probabilities = softmax(4 * np.random.default_rng(0).normal(size=(500, 4)))
    flat = tempered(probabilities, 0.4)
    assert abs(1 - flat.max(1).mean() - 0.4) < 1e-3
    np.testing.assert_array_equal(flat.argmax(1), probabilities.argmax(1))
    assert tempered(probabilities, 0.01) is probabilities
    sets = flat >= set_threshold(flat, 0.1)
    assert abs((flat * sets).sum(1).mean() - 0.9) < 0.01


def test_probabilities_of_zero_can_be_flattened():
    sure = np.eye(3)[[0, 1]]
    flat = tempered(sure, 0.4)
    assert np.isfinite(flat).all()
    assert 1 - flat.max(1).mean() >= 0.4 - 1e-6
    np.testing.assert_array_equal(tempered(sure, 0.0), sure)


def test_the_smallest_sets_by_hand():
    """The largest probabilities of all cells until 1 - alpha of their number is reached."""
    p = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
    assert [set_threshold(p, alpha) for alpha in (0.4, 0.3, 0.0)] == [0.5, 0.3, 0.1]


@pytest.mark.parametrize("n_cells", [30, 100, 1000, 100_000])
def test_fewer_cells_never_look_more_like_the_reference(n_cells):
    """What few cells leave possible is judged: 30 cells with an AUC of .55 may well be shifted."""
    for auc in np.linspace(0.4, 1, 13):
        assert shift_strength(auc, n_cells) >= shift_strength(auc, 10 * n_cells)
    assert shift_strength(0.75, n_cells) == 1
    assert shift_strength(0.5, 100_000) == 0


def test_the_error_to_expect_by_hand():
    p = np.array([[0.8, 0.2], [0.9, 0.1]])
    many = np.tile(p, (50_000, 1))
    assert expected_error(many, 1.5, 0.0) == pytest.approx(0.15)
    assert expected_error(many, 1.5, 1.0) == pytest.approx(0.225, rel=1e-3)
    # Two cells count 2, and an error of .3 counts 50.
    assert expected_error(p, 1.5, 1.0) == pytest.approx((2 * 0.225 + 50 * 0.3) / 52)
    assert expected_error(p, 1.5, 0.0) == pytest.approx(0.15)
    assert expected_error(p[:0], 1.5, 1.0) == 0
    assert expected_error(np.full((500, 10), 0.1), 2.0, 1.0) == 0.9


def test_batches_can_raise_the_error_and_never_lower_it():
    assert error_ratio(np.zeros(2)) == 1.4
    assert error_ratio(np.array([0.0, 500.0])) == 1.4
    assert error_ratio(np.array([120.0, 80.0])) == pytest.approx(1.4 * 140 / 100)
    assert error_ratio(np.array([1e6, 1.0])) == 2.5


def test_sets_of_calibration_and_of_a_shift_meet_without_a_jump():
    """At either end they are what each rule says, and in between a label enters or leaves but once."""
    rng = np.random.default_rng(0)
    ranks, p = rng.random((200, 5)), softmax(2 * rng.normal(size=(200, 5)))
    np.testing.assert_array_equal(joint_sets(ranks, p, 0.1, 0.0, 0.2), ranks > 0.1)
    np.testing.assert_array_equal(joint_sets(ranks, p, 0.1, 1.0, 0.2), p >= 0.2)
    steps = np.stack([joint_sets(ranks, p, 0.1, strength, 0.2) for strength in np.linspace(0, 1, 101)])
    assert (np.abs(np.diff(steps.astype(int), axis=0)).sum(0) <= 1).all()
    assert np.abs(np.diff(steps.mean((1, 2)))).max() < 0.03
