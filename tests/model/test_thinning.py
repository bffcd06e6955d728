"""Parts of counts are independent measurements of the same cell."""

from __future__ import annotations

import numpy as np
import pytest

from dice._model.counts import HALVES, alike, binomial, halves, recover, split, thinned


def cells(n=400, d=120, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(3 * rng.gamma(0.5, size=d), size=(n, d))
    counts[:, 0] = 1  # A one in every cell.
    total = 2 * counts.sum(1, keepdims=True)  # As many counts again in genes that are not at hand.
    return recover(np.log1p(counts * (1e4 / total)).astype(np.float32)), counts


def test_parts_add_up_and_have_their_share():
    known, counts = cells()
    shares = np.tile([0.2, 0.3, 0.5], (len(counts), 1))
    parts = split(known, shares, np.random.default_rng(0))
    np.testing.assert_array_equal(sum(part.counts.toarray() for part in parts), counts)
    for part, share in zip(parts, (0.2, 0.3, 0.5), strict=True):
        assert part.counts.sum() / counts.sum() == pytest.approx(share, abs=0.01)
        # The total includes the genes that are not at hand, which are split as well.
        assert np.exp(part.log_depth - known.log_depth).mean() == pytest.approx(share, rel=0.02)


@pytest.mark.parametrize("n_parts", [3, 10])
def test_shares_that_rounding_adds_up_to_more_than_one_give_all_counts(n_parts):
    """The last part takes what is left, also if its share is larger than that by a rounding error."""
    known, counts = cells()
    shares = np.random.default_rng(2).dirichlet(np.ones(n_parts), size=len(counts))
    assert (shares[:, -1] > 1 - shares[:, :-1].sum(1)).any()
    parts = split(known, shares, np.random.default_rng(0))
    np.testing.assert_array_equal(sum(part.counts.toarray() for part in parts), counts)


def test_parts_of_poisson_counts_are_independent():
    rng = np.random.default_rng(0)
    counts = rng.poisson(6.0, size=(4000, 30))
    counts[:, 0] = 1
    known = recover(np.log1p(counts * 5.0).astype(np.float32))
    first, second = split(known, np.full((4000, 2), 0.5), rng)
    a, b = first.counts.toarray()[:, 1:], second.counts.toarray()[:, 1:]
    correlation = [np.corrcoef(a[:, j], b[:, j])[0, 1] for j in range(29)]
    assert np.abs(correlation).max() < 4 / np.sqrt(4000)


def test_joined_parts_are_the_whole():
    known, counts = cells()
    first, second = split(known, np.full((len(counts), 2), 0.5), np.random.default_rng(1))
    whole = first.joined(second)
    np.testing.assert_array_equal(whole.counts.toarray(), counts)
    np.testing.assert_allclose(whole.factor, known.factor, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_binomial_moments(share):
    rng, counts = np.random.default_rng(0), np.repeat([1, 2, 7], 20_000)
    drawn = binomial(counts, np.full(len(counts), share), rng)
    for count in (1, 2, 7):
        mine = drawn[counts == count]
        assert mine.mean() == pytest.approx(count * share, abs=0.05)
        assert mine.var() == pytest.approx(count * share * (1 - share), abs=0.06)


def test_thinning_depends_on_nothing_but_the_cell():
    known, counts = cells(60)
    shares, seeds = np.full(60, 0.3), np.arange(60) * 7919 - 3
    whole = thinned(known, shares, seeds).toarray()
    order = np.random.default_rng(0).permutation(60)
    values = np.log1p(counts * known.factor[:, None]).astype(np.float32)
    other = thinned(recover(values[order]), shares, seeds[order]).toarray()
    np.testing.assert_allclose(other, whole[order], atol=1e-5)
    assert recover(whole).whole.all()
    assert np.exp(recover(whole).log_depth - known.log_depth).mean() == pytest.approx(0.3, rel=0.1)


def test_a_share_near_one_keeps_all_counts():
    known, counts = cells(20)
    kept = recover(thinned(known, np.full(20, 0.95), np.arange(20)))
    np.testing.assert_array_equal(kept.counts.toarray(), counts)


def test_halves_add_up_are_independent_and_follow_the_seed_of_the_cell():
    known, counts = cells(n=2000)
    seeds = np.arange(2000)
    pairs = halves(known, seeds, 3)
    for first, second in pairs:
        np.testing.assert_array_equal((first.counts + second.counts).toarray(), counts)
        np.testing.assert_allclose(1 / (1 / first.factor + 1 / second.factor), known.factor, rtol=1e-3)
    a, b = (part.counts.toarray()[:, 1:] for part in pairs[0])
    correlation = [np.corrcoef(a[:, j], b[:, j])[0, 1] for j in range(a.shape[1]) if a[:, j].std() and b[:, j].std()]
    assert np.abs(correlation).max() < 4.5 / np.sqrt(2000)
    assert (pairs[0][0].counts != pairs[1][0].counts).nnz
    # Another order, and other neighbours, change nothing.
    order = np.random.default_rng(0).permutation(2000)[:50]
    some = recover(np.log1p(counts[order] * (1e4 / (2 * counts[order].sum(1, keepdims=True)))).astype(np.float32))
    again = halves(some, seeds[order], 3)
    np.testing.assert_array_equal(again[2][1].counts.toarray(), pairs[2][1].counts.toarray()[order])


@pytest.mark.parametrize("times", [1, 40])
def test_cells_that_are_alike_have_one_profile_and_their_own_depths(times):
    """Shallow and deep cells are drawn in different ways."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(times * rng.gamma(0.5, size=40), size=(500, 40)) + (np.arange(40) == 0)
    known = recover(np.log1p(counts * 1.0).astype(np.float32))
    profile = np.arange(1, 41) / 820
    drawn = alike(known, profile, np.arange(500)).toarray()
    np.testing.assert_array_equal(drawn.sum(1), counts.sum(1))
    expected = profile * counts.sum()
    assert (np.abs(drawn.sum(0) - expected) < 5 * np.sqrt(expected)).all()
    np.testing.assert_array_equal(alike(known, profile, np.arange(500)).toarray(), drawn)


def test_cells_without_entries_between_others_have_empty_halves():
    """Also at both ends, where sums over entries begin with somebody else's."""
    counts = np.zeros((5, 4))
    counts[1], counts[3] = [3, 0, 1, 5], [1, 2, 0, 0]
    known = recover(np.log1p(counts * 7.0).astype(np.float32))
    ((first, second),) = halves(known, -np.arange(5), 1)
    # Seeds are signed, and the keys of the generator are not.
    rng = np.random.Generator(np.random.Philox(key=2**64 - 1 + HALVES))
    np.testing.assert_array_equal(first.counts.toarray()[1, [0, 2, 3]], rng.binomial([3, 1, 5], 0.5))
    np.testing.assert_array_equal((first.counts + second.counts).toarray(), counts)
    assert np.isnan(first.factor[[0, 2, 4]]).all()
    np.testing.assert_allclose(1 / first.factor[[1, 3]] + 1 / second.factor[[1, 3]], 1 / 7.0, rtol=1e-6)


def test_thinned_cells_are_normalised_by_all_of_their_counts():
    """Genes that are not at hand are thinned, too: f t = target sum, before as after."""
    known, _ = cells(400)
    total = 1e4 / known.factor
    kept = recover(thinned(known, np.full(400, 0.5), np.arange(400)))
    after = 1e4 / kept.factor
    np.testing.assert_allclose((after / total).mean(), 0.5, rtol=0.02)
    assert (np.abs(after - total / 2) < 5 * np.sqrt(total / 4)).all()
