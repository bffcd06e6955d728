"""Thresholds that mean an error rate."""

from __future__ import annotations

import numpy as np
import pytest

from dice._core.labels.doubt import STATUSES, confident_from, in_a_word, widened, with_most_likely


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


def test_words():
    told = in_a_word(np.array([True, True, False, False]), np.array([False, True, False, True]))
    assert [STATUSES[code] for code in told] == [
        "confident",
        "unlike the reference",
        "ambiguous",
        "unlike the reference",
    ]
