"""Batches of a reference as queries of each other."""

from __future__ import annotations

import numpy as np

from dice._labels.learn import batch_evidence
from dice._model.arrays import explained_by_batches


def reference(shift, seed=0, n=1200):
    rng = np.random.default_rng(seed)
    labels, batches = rng.integers(4, size=n), rng.integers(3, size=n)
    x = 1.8 * np.eye(4, 12)[labels] + rng.normal(size=(n, 12))
    x += shift * rng.normal(size=(3, 12))[batches] * (1 + labels[:, None] % 2)
    return x.astype(np.float32), labels, batches


def test_without_a_shift_labels_are_wrong_as_often_as_expected():
    x, labels, batches = reference(0.0)
    wrong, expected = batch_evidence(x, x, labels, batches, 4, 0)
    assert 200 < wrong < 700
    assert 0.7 < wrong / expected < 1.15


def test_a_shift_that_differs_by_label_raises_the_ratio():
    plain, far = (batch_evidence(x, x, labels, b, 4, 0) for x, labels, b in (reference(0.0), reference(1.5)))
    assert far[0] / far[1] > 1.3 * plain[0] / plain[1]


def test_batches_explain_more_than_a_random_column_and_small_batches_are_left_out():
    x, labels, batches = reference(1.0)
    other = np.random.default_rng(1).integers(2, size=len(labels))
    assert explained_by_batches(x, batches, labels) > explained_by_batches(x, other, labels)
    few = np.where(np.arange(len(labels)) < 30, 1, 0)
    whole = batch_evidence(x, x, labels, few, 4, 0)
    # The large batch is a query of 30 cells, and those 30 are no query.
    assert whole[0] > 0
    np.testing.assert_array_equal(batch_evidence(x[:80], x[:80], labels[:80], few[:80] * 0, 4, 0), [0, 0])
