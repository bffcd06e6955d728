"""Parts of counts are independent measurements of the same cell."""

from __future__ import annotations

import numpy as np
import pytest

from dice._core.measurement.counts import recover
from dice._core.measurement.matching import thinned
from dice._core.measurement.thinning import binomial, split


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
