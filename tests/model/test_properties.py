"""Properties of recovered counts and of their parts, for any cells: order, chunks, kinds of matrix, and seeds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from dice._model.counts import alike, halves, normalised, recover, split, thinned

#: Cells of a few genes, the first of which is seen once: any factor can then be told from the values.
MATRICES = hnp.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 8)), elements=st.integers(0, 400)).map(
    lambda counts: np.concatenate([np.ones((len(counts), 1), np.int64), counts], axis=1)
)
FACTORS = st.floats(0.01, 500)
KINDS = st.sampled_from([np.asarray, sparse.csr_matrix, sparse.csr_array, sparse.csc_array, sparse.coo_array])
SEEDS = st.integers(-(2**63), 2**63 - 1)


def logged(counts, factor):
    return np.log1p(counts * factor).astype(np.float32)


@given(MATRICES, FACTORS, KINDS)
@settings(deadline=None, derandomize=True, max_examples=50)
def test_counts_come_back_from_any_matrix(counts, factor, kind):
    found = recover(kind(logged(counts, factor)))
    assert found.whole.all()
    np.testing.assert_array_equal(found.counts.toarray(), counts)
    np.testing.assert_allclose(found.factor, factor, rtol=1e-3)
    np.testing.assert_allclose(normalised(found.counts, found.factor).toarray(), logged(counts, factor), rtol=1e-3)


@given(MATRICES, FACTORS, st.randoms(use_true_random=False))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_order_of_cells_and_genes_does_not_matter(counts, factor, random):
    cells, genes = list(range(len(counts))), list(range(counts.shape[1]))
    random.shuffle(cells)
    random.shuffle(genes)
    values = logged(counts, factor)
    found, moved = recover(values), recover(values[np.ix_(cells, genes)])
    np.testing.assert_array_equal(moved.counts.toarray(), found.counts.toarray()[np.ix_(cells, genes)])
    np.testing.assert_array_equal(moved.log_depth, found.log_depth[cells])


@given(MATRICES, FACTORS, st.data())
@settings(deadline=None, derandomize=True, max_examples=50)
def test_parts_depend_on_the_cell_and_its_seed_alone(counts, factor, data):
    """Any cells beside it, in any order, leave its parts as they are, and parts add up to the cell."""
    n = len(counts)
    seeds = np.array(data.draw(st.lists(SEEDS, min_size=n, max_size=n)))
    order = np.array(data.draw(st.permutations(range(n))))[: data.draw(st.integers(1, n))]
    values = logged(counts, factor)
    whole, part = recover(values), recover(values[order])
    for (first, second), (mine, other) in zip(halves(whole, seeds, 2), halves(part, seeds[order], 2), strict=True):
        np.testing.assert_array_equal((first.counts + second.counts).toarray(), counts)
        np.testing.assert_array_equal(mine.counts.toarray(), first.counts.toarray()[order])
        np.testing.assert_array_equal(other.factor, second.factor[order])
    shares = np.full(n, data.draw(st.floats(0, 1)))
    shallow = thinned(whole, shares, seeds)
    np.testing.assert_array_equal(thinned(part, shares[order], seeds[order]).toarray(), shallow.toarray()[order])
    profile = (counts.sum(0) / counts.sum()).astype(np.float64)
    drawn = alike(whole, profile, seeds).toarray()
    np.testing.assert_array_equal(drawn.sum(1), counts.sum(1))
    np.testing.assert_array_equal(alike(part, profile, seeds[order]).toarray(), drawn[order])


@given(MATRICES, FACTORS, st.integers(1, 4), st.integers(0, 2**32))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_disjoint_parts_are_never_more_than_the_cell(counts, factor, n_parts, seed):
    shares = np.full((len(counts), n_parts), 1 / n_parts)
    parts = split(recover(logged(counts, factor)), shares, np.random.default_rng(seed))
    total = sum(part.counts.toarray() for part in parts)
    assert (total <= counts).all()
    again = split(recover(logged(counts, factor)), shares, np.random.default_rng(seed))
    for part, same in zip(parts, again, strict=True):
        np.testing.assert_array_equal(part.counts.toarray(), same.counts.toarray())
