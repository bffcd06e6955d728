"""Cells that are held out, for labels and for features."""

from __future__ import annotations

import numpy as np
import pytest

from dice._query.held_out import FOLDS, cells_of, folds_by_batch, folds_of


def test_roles_and_known_cells():
    roles, known = np.array([0, 1, 2, 0, -1]), np.array([True, True, True, False, True])
    np.testing.assert_array_equal(cells_of(roles, known, "train", "calibration"), [0, 2])


@pytest.mark.parametrize(("n", "in_turn", "n_folds"), [(60, False, 1), (60, True, FOLDS), (10, False, FOLDS)])
def test_every_cell_is_held_out_once(n, in_turn, n_folds):
    train, validation = np.arange(100), np.arange(100, 100 + n)
    folds = list(folds_of(train, validation, 0, in_turn=in_turn))
    assert len(folds) == n_folds
    tested = np.concatenate([test for _, test in folds])
    np.testing.assert_array_equal(np.sort(tested), validation if n_folds == 1 else np.arange(100 + n))
    assert all(not set(fit) & set(test) for fit, test in folds)


def test_batches_stay_together():
    cells, batches = np.arange(50, 150), np.arange(100) % 7
    folds = list(folds_by_batch(cells, batches, 0))
    assert len(folds) == FOLDS
    for fit, test in folds:
        assert not set(batches[fit - 50]) & set(batches[test - 50])
    assert list(folds_by_batch(cells, np.zeros(100, int), 0)) == []
