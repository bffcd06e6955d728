"""Roles of the cells of a reference, for every number of cells."""

from __future__ import annotations

import numpy as np
import pytest

from dice._model.training_data import assign_roles


@pytest.mark.parametrize(("validation", "calibration"), [(0.2, 0.1), (0.2, 0.0), (0.0, 0.0), (0.9, 0.5), (0.0, 0.9)])
def test_roles_have_their_shares_and_two_cells_are_left_to_train(validation, calibration):
    for n in (*range(12), 100, 333):
        roles = assign_roles(n, validation, calibration, 3)
        n_train, n_validation, n_calibration = np.bincount(roles, minlength=3)
        assert n_train + n_validation + n_calibration == n
        assert n_train >= min(n, 2)
        assert n_validation == min(round(validation * n), max(n - 2, 0))
        assert n_calibration == min(round(calibration * n), max(n - 2 - n_validation, 0))
        np.testing.assert_array_equal(roles, assign_roles(n, validation, calibration, 3))
    assert (assign_roles(100, 0.3, 0.1, 1) != assign_roles(100, 0.3, 0.1, 2)).any()
