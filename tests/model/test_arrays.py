from __future__ import annotations

import numpy as np
import pytest

from dice._model.arrays import subsample


@pytest.mark.parametrize(
    ("most", "kept"), [(0, []), (1, [0]), (2, [0, 10]), (3, [0, 5, 10]), (11, range(11)), (99, range(11))]
)
def test_from_the_first_to_the_last(most, kept):
    rows = np.arange(22).reshape(11, 2)
    np.testing.assert_array_equal(subsample(rows, most), rows[list(kept)])


def test_of_nothing_nothing_is_left():
    assert subsample(np.empty((0, 3)), 5).shape == (0, 3)
