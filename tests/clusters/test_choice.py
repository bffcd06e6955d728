"""The choice of a resolution, and what is done with its clusters."""

from __future__ import annotations

import numpy as np
import pytest

from dice._clusters.choice import (
    ALWAYS,
    FINEST,
    AgreementCurve,
    by_size,
    confidence,
    explore,
    merge_by_depth,
    merge_untold,
)


def curve(agreement, n_clusters):
    n = len(agreement)
    return AgreementCurve(
        np.arange(n, dtype=float), np.array(n_clusters, dtype=float), np.array(agreement), np.zeros(n)
    )


def test_the_finest_agreeing_resolution_is_chosen_even_beyond_a_dip():
    assert curve([1.0, 0.7, 0.9, 0.85, 0.84], [2, 3, 4, 5, 6]).agreed(0.85) == [3, 2, 0]


def test_agreement_on_one_cluster_is_no_choice():
    assert curve([1.0, 1.0, 0.1], [1, 1, 4]).agreed(0.85) == []
    assert curve([0.2, 0.1], [2, 3]).agreed(0.85) == []


def truth(n=400, seed=0):
    return np.random.default_rng(seed).integers(4, size=n)


def test_all_coarse_resolutions_are_tried_and_fine_ones_only_while_draws_agree():
    tried = []
    known = truth()
    chance = np.random.default_rng(1)

    def clusters(resolution):
        found = known if resolution < 4 else chance.integers(20, size=len(known))
        other = known if resolution < 4 else chance.integers(20, size=len(known))
        return np.array([[found, other]])

    found = explore(clusters, 0.85, tried.append)
    assert tried == list(found.resolution)
    finest = found.resolution[found.agreed(0.85)[0]]
    # Resolutions go up by a quarter, and three that fail end the search.
    assert finest < 4 <= finest * 1.25
    assert found.resolution[-1] == pytest.approx(finest * 1.25**3)
    np.testing.assert_allclose(found.agreement[found.resolution < 4], 1)
    assert (abs(found.agreement[found.resolution >= 4]) < 0.1).all()


@pytest.mark.parametrize(("agrees", "last"), [(True, FINEST), (False, ALWAYS)])
def test_the_search_ends(agrees, last):
    rng = np.random.default_rng(0)

    def clusters(resolution):
        first = rng.integers(5, size=200)
        return np.array([[first, first if agrees else rng.integers(5, size=200)]])

    found = explore(clusters, 0.85, lambda resolution: None)
    assert found.resolution[-1] <= last < found.resolution[-1] * 1.25


def test_agreement_is_the_adjusted_rand_index_of_two_draws():
    # Of 10 pairs of cells the draws put 4 and 2 together, 2 of them in common: (2 - .8) / (3 - .8).
    draws = np.array([[[0, 0, 0, 1, 1], [0, 0, 2, 1, 1]]])
    found = explore(lambda resolution: draws, 0.7, lambda resolution: None)
    np.testing.assert_allclose(found.agreement, 1.2 / 2.2)


def test_spread_is_that_over_pairs_of_draws():
    first, other = truth(), truth(seed=1)
    found = explore(lambda resolution: np.array([[first, first], [first, other]]), 2.0, lambda resolution: None)
    np.testing.assert_allclose(found.agreement, 0.5, atol=0.05)
    np.testing.assert_allclose(found.spread, 0.5, atol=0.05)


def test_clusters_are_numbered_by_size():
    np.testing.assert_array_equal(by_size(np.array([5, 7, 7, 9, 9, 9])), [2, 1, 1, 0, 0, 0])


def test_confidence_counts_the_halves_that_keep_a_cell():
    clusters = np.array([0, 0, 0, 1, 1, 1])
    finer = np.array([0, 0, 1, 2, 2, 2])  # a cluster cut in two keeps its cells
    moved = np.array([0, 0, 1, 1, 1, 1])  # the third cell is with the others
    np.testing.assert_allclose(confidence(clusters, [finer, moved]), [1, 1, 0.5, 1, 1, 1])


def test_clusters_of_depth_alone_are_merged_and_others_are_not():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], 50)
    by_depth = np.where(codes[:, None] == 1, 5.0, 0.0) * np.ones(4) + 0.1 * rng.normal(size=(150, 4))
    # The second cluster differs from the first in depth alone, the third in something else.
    cells = by_depth + np.where(codes[:, None] == 2, [0, 0, 0, 6.0], 0) + 0.1 * rng.normal(size=(150, 4))
    found = merge_by_depth(codes, [(cells, by_depth)])
    np.testing.assert_array_equal(found, np.repeat([0, 0, 1], 50))
    np.testing.assert_array_equal(codes, np.repeat([0, 1, 2], 50))


def test_depth_merges_nothing_where_it_makes_no_difference():
    codes = np.repeat([0, 1], 20)
    cells = np.where(codes[:, None], 1.0, -1.0) * np.ones(3)
    np.testing.assert_array_equal(merge_by_depth(codes, [(cells, np.zeros((40, 3)))]), codes)


def test_shallow_middle_and_deep_cells_of_one_profile_are_one_cluster():
    codes = np.repeat([0, 1, 2], 50)
    # Shallow and deep cells differ from each other, and together not from the middle ones, but for a little chance.
    depth = np.array([-1.0, 0.0, 1.0])[codes]
    cells = depth[:, None] * [1.0, 0.5] + np.where(codes == 1, 0.05, 0.0)[:, None]
    found = merge_by_depth(codes, [(cells, depth[:, None] * [1.0, 0.5])])
    np.testing.assert_array_equal(found, np.zeros(150))


def halves_of(codes, rng, *, wrong=0.05, n_splits=3):
    """Clusterings of halves that know `codes` (n,) up to a share of errors."""
    moved = rng.random((n_splits, 2, len(codes))) < wrong
    return np.where(moved, rng.integers(codes.max() + 1, size=moved.shape), codes)


def test_a_cut_that_halves_do_not_share_is_undone_among_many_that_they_do():
    rng = np.random.default_rng(0)
    types = np.repeat(np.arange(20), 30)
    cut = np.where((types == 7) & (rng.random(600) < 0.5), 20, types)
    # Every half cuts the eighth type too, and each at random.
    chance = rng.random((3, 2, 600)) < 0.5
    halves = np.where((types == 7) & chance, 20, types)
    np.testing.assert_array_equal(merge_untold(cut, halves), types)


def test_clusters_that_halves_tell_apart_stay():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(6), 50)
    np.testing.assert_array_equal(merge_untold(codes, halves_of(codes, rng)), codes)
    # A half that joins two clusters does not tell them apart.
    joined = np.where(codes == 5, 4, codes)
    np.testing.assert_array_equal(merge_untold(codes, halves_of(joined, rng)), joined)


def test_one_cluster_has_nothing_to_merge():
    codes = np.zeros(10, dtype=np.intp)
    np.testing.assert_array_equal(merge_untold(codes, np.zeros((2, 2, 10), dtype=np.intp)), codes)


def test_clusters_that_differ_in_one_space_are_kept():
    codes = np.repeat([0, 1], 20)
    cells = np.where(codes[:, None], 1.0, -1.0) * np.ones(3)
    spaces = [(cells, cells), (cells, np.zeros((40, 3)))]
    np.testing.assert_array_equal(merge_by_depth(codes, spaces), codes)
    np.testing.assert_array_equal(merge_by_depth(codes, spaces[:1]), np.zeros(40))
