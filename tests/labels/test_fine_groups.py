"""A fine partition of a query."""

from __future__ import annotations

import numpy as np

from dice._labels.cells import GROUP_CELLS, fine_groups


def cells(n=500, seed=0):
    rng = np.random.default_rng(seed)
    types = rng.integers(5, size=n)
    return (8 * np.eye(5)[types] + rng.normal(size=(n, 5))).astype(np.float32), types


def test_groups_have_about_25_cells_of_one_type():
    y, types = cells()
    codes = fine_groups(y, np.arange(500)).codes
    assert codes.max() + 1 == 500 // GROUP_CELLS
    pure = [len(np.unique(types[codes == code])) == 1 for code in np.unique(codes)]
    assert np.mean(pure) > 0.9


def test_cells_that_are_left_out_have_no_group_and_few_cells_one():
    y, _ = cells()
    codes = fine_groups(y, np.arange(0, 500, 2)).codes
    assert (codes[1::2] == -1).all()
    assert (codes[::2] >= 0).all()
    assert set(fine_groups(y[:20], np.arange(20)).codes) == {0}
    np.testing.assert_array_equal(fine_groups(y[:3], np.arange(0)).codes, [-1, -1, -1])
    assert set(fine_groups(np.zeros((100, 2), np.float32), np.arange(100)).codes) == {0}


def test_the_order_of_the_file_does_not_matter():
    """The order of learning belongs to the cells."""
    y, _ = cells()
    turned = np.random.default_rng(1).permutation(500)
    learned = np.random.default_rng(2).permutation(500)
    place = np.argsort(turned)
    np.testing.assert_array_equal(fine_groups(y, learned).codes[turned], fine_groups(y[turned], place[learned]).codes)
