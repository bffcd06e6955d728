"""Cells of a reference made as shallow as those of a query."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dice._model.counts import recover, thinned
from dice._query.reference import as_shallow

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(RNG.gamma(1, 40, size=30), size=(50, 30)) + (np.arange(30) == 0)
TOTALS = COUNTS.sum(1)
CELLS = sparse.csr_array(np.log1p(COUNTS * (1e4 / TOTALS)[:, None]).astype(np.float32))
SEEDS = np.arange(50) * 7919


def shallow_cells(depths=(), share=None, cells=CELLS, rows=slice(0, 50)):
    return as_shallow(cells[rows], SEEDS[rows], np.sort(np.array(depths, dtype=float)), share)


def test_cells_are_left_alone_where_depth_does_not_matter():
    assert as_shallow(CELLS, SEEDS, np.empty(0)) is CELLS


def test_cells_have_the_depths_of_the_query():
    """Each is as deep as one of them, by its own seed, or as deep as it is where that is less."""
    depths = np.log(np.array([30.0, 100.0, 1e9]) / 1e4)
    shallow = recover(shallow_cells(depths))
    asked = np.minimum(np.exp(depths[SEEDS % 3]) * 1e4, TOTALS)
    assert (np.abs(shallow.counts.sum(1) - asked) <= 5 * np.sqrt(asked)).all()
    whole = asked == TOTALS
    np.testing.assert_array_equal(shallow.counts.toarray()[whole], COUNTS[whole])
    part = recover(shallow_cells(depths, rows=slice(10, 20)))
    np.testing.assert_array_equal(part.counts.toarray(), shallow.counts.toarray()[10:20])


def test_a_share_is_kept_whatever_the_depths_say():
    shallow = recover(shallow_cells(np.log([1e-4]), share=0.5))
    assert (np.abs(shallow.counts.sum(1) - TOTALS / 2) <= 5 * np.sqrt(TOTALS / 4)).all()


def test_all_counts_at_hand_are_normalised_by_what_is_kept():
    """No gene is missing, so that the target sum is reached by those at hand, as exactly as before."""
    shallow = thinned(recover(CELLS), np.full(50, 0.3), SEEDS)
    np.testing.assert_allclose(np.expm1(shallow.toarray().astype(np.float64)).sum(1), 1e4, rtol=1e-4)


def test_a_tenth_less_is_no_other_depth():
    cells = recover(CELLS)
    np.testing.assert_allclose(thinned(cells, np.full(50, 0.9), SEEDS).toarray(), CELLS.toarray(), rtol=1e-5)
    assert (thinned(cells, np.full(50, 0.89), SEEDS) != CELLS).nnz


def test_a_cell_that_loses_all_counts_is_empty():
    assert not thinned(recover(CELLS), np.full(50, 0.0), SEEDS).data.any()


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_cells_that_are_no_counts_stay(kind):
    cells = CELLS.toarray()
    cells[[3, 7]] = RNG.normal(2, 0.3, size=(2, 30))
    found = shallow_cells(np.log([0.01]), cells=kind(cells)).toarray()
    np.testing.assert_allclose(found[[3, 7]], cells[[3, 7]], rtol=1e-6)
    others = np.delete(np.arange(50), [3, 7])
    assert (np.count_nonzero(found[others], axis=1) < np.count_nonzero(cells[others], axis=1)).mean() > 0.5
