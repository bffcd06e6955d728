"""Trees of clusters: merges, cuts and names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dice._clusters.partition import distance_matrix, nearest, shared_neighbors
from dice._clusters.separation import agreement, separation
from dice._clusters.tree import CUT_LEVELS, Cut, Tree, grow, level_of, stored_cut
from dice._errors import InputError, SlotError


def line(positions, sizes):
    """Clusters on a line: their codes, and the distance of the means of two sets of cells."""
    codes = np.repeat(np.arange(len(positions)), sizes)
    values = np.repeat(positions, sizes).astype(float)
    return codes, lambda a, b: abs(values[a].mean() - values[b].mean())


def test_the_closest_clusters_are_joined_first():
    codes, apart = line([0, 1, 10, 14], [2, 2, 2, 2])
    tree = grow(codes, sparse.csr_matrix(np.ones((8, 8))), apart)
    assert tree.joined.tolist() == [[0, 1], [2, 3], [4, 5]]
    np.testing.assert_allclose(tree.separation, [1, 4, 11.5])
    assert tree.cut(0.5) == [0, 1, 2, 3]
    assert tree.cut(2) == [4, 2, 3]
    assert tree.cut(5) == [4, 5]
    assert tree.cut(99) == [6]
    assert tree.members([4, 5]).tolist() == [0, 0, 1, 1]


def test_clusters_without_an_edge_are_never_compared():
    codes, apart = line([0, 1, 5], [2, 2, 2])
    graph = sparse.block_diag([np.ones((2, 2)), np.ones((4, 4))]).tocsr()

    def checked(a, b):
        assert 0 not in codes[a]
        return apart(a, b)

    tree = grow(codes, graph, checked)
    np.testing.assert_allclose(tree.separation, [4, np.inf])
    assert len(tree.cut(1e9)) == 2


def test_separations_ascend():
    """A merged cluster may be closer to the next one than its parts were."""
    codes, _ = line([0, 1, 2], [1, 1, 1])
    tree = grow(codes, sparse.csr_matrix(np.ones((3, 3))), lambda a, b: 3.0 if len(a) + len(b) == 2 else 1.0)
    np.testing.assert_allclose(tree.separation, [3, 3])


def test_names_are_nested():
    codes, apart = line([0, 1, 10, 12, 40], [3, 4, 2, 1, 30])
    tree = grow(codes, sparse.csr_matrix(np.ones((40, 40))), apart)
    names = tree.names(3.0)
    assert [names[node] for node in tree.cut(3.0)] == ["0", "1", "2"]
    assert names[:5] == ["1.2", "1.1", "2.1", "2.2", "0"]
    assert names[-2:] == ["1+2", "0+1+2"]
    assert len(set(names)) == len(names) == 9


@given(st.lists(st.floats(0, 20), min_size=2, max_size=12, unique=True), st.floats(0.1, 9), st.floats(0.1, 9))
def test_cuts_are_nested(positions, one, other):
    codes, apart = line(positions, [1 + i % 3 for i in range(len(positions))])
    tree = grow(codes, sparse.csr_matrix(np.ones((len(codes),) * 2)), apart)
    fine, coarse = (tree.members(tree.cut(level)) for level in sorted((one, other)))
    assert (fine >= 0).all()
    assert all(len(set(coarse[fine == code])) == 1 for code in set(fine))


def test_a_cut_places_cells_and_says_how_sure():
    tree = Tree(3, np.array([[0, 1], [2, 3]]), np.array([2.0, 5.0]), np.array([5.0, 4.0, 3.0]))
    cut = Cut(tree, CUT_LEVELS["default"])
    codes, sure = cut.place(np.array([[0, 1, 0], [2, 2, 1], [-1, -1, -1]]))
    assert codes.tolist() == [0, 1, -1]
    np.testing.assert_allclose(sure, [1, 0.5, np.nan])
    assert cut.names == ["0", "1"]
    assert "2 clusters" in cut.why
    assert "the closest two are 1 and 0" in cut.why
    again = stored_cut(cut.record(), 0.999999)
    assert again.names == ["0+1"]
    assert "one cluster" in again.why
    assert "99%" in again.why  # Agreement at a separation of 5.


def test_a_part_of_the_cells_keeps_the_tree_and_its_names():
    joined = np.array([[0, 1], [2, 3], [4, 5]])
    tree = Tree(4, joined, np.array([4.0, 6.0, 8.0]), np.array([9.0, 8.0, 7.0, 6.0]))
    record = Cut(tree, CUT_LEVELS["default"]).record()
    leaves = np.array([[3, 3], [1, 1], [3, 0]])
    part = stored_cut(record, leaves=leaves[:, 0])
    codes, sure = part.place(leaves)
    assert [part.names[code] for code in codes] == ["3", "1", "3"]
    np.testing.assert_allclose(sure, [1, 1, 0])
    assert "2 clusters" in part.why
    assert part.agreement == pytest.approx(float(agreement(8.0)))  # Leaves 1 and 3 meet in the last merge alone.
    alone = stored_cut(record, leaves=np.array([2]))
    assert alone.names == ["2"]
    # There are no two parts that a second measurement could place.
    assert alone.why == "All cells are one cluster, which the tree does not divide."


def test_levels():
    assert level_of("fine") < level_of("default") < level_of("coarse")
    assert level_of(0.7) == 0.7
    for wrong in ("finest", 0.5, 1.0, True, None, np.zeros(2)):
        with pytest.raises(InputError, match="`level` must be"):
            level_of(wrong)
    single = Tree(1, np.empty((0, 2), np.intp), np.empty(0), np.array([4.0]))
    assert Cut(single, CUT_LEVELS["fine"]).names == ["0"]
    assert "one cluster" in Cut(single, CUT_LEVELS["fine"]).why


def test_shared_neighbors_are_jaccard_indices():
    cells = np.random.default_rng(0).normal(size=(60, 3))
    found, distances = nearest(cells, 8)
    assert (found[:, 0] == np.arange(60)).all()
    shared = shared_neighbors(found).toarray()
    sets = [set(row) for row in found.tolist()]
    for i in range(60):
        for j in range(60):
            jaccard = len(sets[i] & sets[j]) / len(sets[i] | sets[j])
            assert shared[i, j] == pytest.approx(jaccard if i != j and jaccard >= 1 / 15 else 0)
    between = distance_matrix(found, distances)
    assert between.nnz == 60 * 7
    i, j = 5, int(found[5, 3])
    assert between[i, j] == pytest.approx(np.linalg.norm(cells[i] - cells[j]), rel=1e-4)


def test_equal_cells_are_neighbours_at_no_distance():
    found, distances = nearest(np.zeros((20, 2)), 5)
    assert distance_matrix(found, distances).nnz >= 20 * 4


@given(st.lists(st.floats(0.1, 9.5), min_size=1, max_size=8), st.floats(0.55, 0.995))
def test_the_agreement_is_that_of_the_next_merge(separations, level):
    """With two clusters or more, a level just above the agreement joins two of them, and one just below none."""
    n = len(separations) + 1
    joined = [(0, 1)] + [(n + i, i + 2) for i in range(n - 2)]
    tree = Tree(n, np.array(joined), np.sort(separations), np.arange(n, 0, -1.0))
    cut = Cut(tree, level)
    assert len(cut.shown) == 1 + int((np.sort(separations) >= float(separation(level))).sum())
    assert cut.agreement == pytest.approx(
        float(agreement(min([s for s in separations if s >= separation(level)] or [max(separations)])))
    )
    placed, sure = cut.place(np.repeat(np.arange(n)[:, None], 3, axis=1))
    assert sorted(set(placed.tolist())) == list(range(len(cut.shown)))
    np.testing.assert_array_equal(sure, 1)
    assert (f"{len(cut.shown)} clusters" in cut.why) == (len(cut.shown) > 1)
    again = stored_cut(cut.record())
    assert (again.names, again.why, again.closest) == (cut.names, cut.why, cut.closest)


@pytest.mark.parametrize("record", [{}, "tree", None])
def test_a_record_without_a_tree_is_refused(record):
    with pytest.raises(SlotError, match=r"holds no tree of clusters: run dice\.tl\.cluster"):
        stored_cut(record)
