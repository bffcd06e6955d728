"""A query that teaches itself: what it mends, and what it may not do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dice._labels.cells import TAUGHT_FOLDS, certain_cells, teach, with_all_labels


def query(n=600, seed=0):
    """Three separate types, a quarter of whose cells the views mistake without being sure."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    latents = (6 * np.eye(3)[truth] + rng.normal(size=(n, 3))).astype(np.float32)
    p = 0.1 + 0.7 * np.eye(3)[truth]
    wrong = rng.random(n) < 0.25
    p[wrong] = 0.25 + 0.25 * np.eye(3)[(truth[wrong] + 1) % 3]
    return truth, latents, p, rng.integers(TAUGHT_FOLDS, size=n)


def teach_all(p, latents, parts):
    return teach(p, latents, parts, np.ones(len(p), dtype=bool))


def test_doubtful_cells_learn_from_certain_ones():
    truth, latents, p, parts = query()
    assert (p.argmax(1) == truth).mean() < 0.8
    taught = teach_all(p, latents, parts)
    assert (taught.argmax(1) == truth).mean() > 0.97
    np.testing.assert_allclose(taught.sum(1), 1, atol=1e-6)


def test_no_cell_teaches_itself():
    """A cell that is alone in being wrong and sure is judged by the others."""
    truth, latents, p, parts = query(seed=1)
    odd = int(np.flatnonzero(truth == 0)[0])
    p[odd] = [0.05, 0.9, 0.05]
    alone = teach_all(p, latents, parts)[odd]
    p[odd] = [0.05, 0.05, 0.9]
    assert alone[0] > 0.4
    assert teach_all(p, latents, parts)[odd][0] > 0.4


def test_only_cells_that_may_teach_do():
    truth, latents, p, parts = query(seed=2)
    among = np.zeros(len(truth), dtype=bool)
    np.testing.assert_array_equal(teach(p, latents, parts, among), p)
    among[::2] = True
    assert (teach(p, latents, parts, among).argmax(1) == truth).mean() > 0.97


def test_most_certain_cells_of_each_label():
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [0.7, 0.3], [0.2, 0.8]] * 4)
    chosen = certain_cells(p)
    assert chosen[p[:, 0] == 0.9].all()
    assert not chosen[p[:, 0] == 0.6].any()
    assert chosen[p[:, 1] == 0.8].all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(5, 12))
def test_a_label_of_five_cells_is_never_lost(seed, n_rare):
    """Whatever the regression says: here the rare label lies in the middle of a common one."""
    rng = np.random.default_rng(seed)
    n = 200
    p = np.tile([0.6, 0.3, 0.1], (n, 1))
    p[:n_rare] = [0.3, 0.3, 0.4]
    p[n_rare : n // 2] = [0.2, 0.7, 0.1]
    taught = teach_all(p, rng.normal(size=(n, 2)).astype(np.float32), rng.integers(TAUGHT_FOLDS, size=n))
    assert (taught.argmax(1) == 2).any()


def test_lost_labels_are_given_back_to_the_cells_that_had_them():
    before = np.array([[0.6, 0.4]] * 5 + [[0.1, 0.9]] * 5)
    after = np.tile([0.2, 0.8], (10, 1))
    kept = with_all_labels(after, before)
    np.testing.assert_array_equal(kept[:5], before[:5])
    np.testing.assert_array_equal(kept[5:], after[5:])
    four = with_all_labels(after[1:], before[1:])
    np.testing.assert_array_equal(four, after[1:])


def test_giving_one_label_back_does_not_take_another():
    """B had survived on the cells of A alone."""
    before = np.array([[0.6, 0.3, 0.1]] * 5 + [[0.1, 0.6, 0.3]] * 5)
    after = np.array([[0.3, 0.6, 0.1]] * 5 + [[0.1, 0.3, 0.6]] * 5)
    np.testing.assert_array_equal(with_all_labels(after, before).argmax(1), [0] * 5 + [1] * 5)
