"""Genes of splits: groups by one half of the counts, tests on the other one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import binomtest, norm

from dice._clusters.markers import SideSums, compare, leaf_sums
from dice._model.counts import halves, normalised, recover

N, D = 300, 60


def group(counts, depth):
    """SideSums of one group of cells, by one half of their counts."""
    return SideSums(
        np.array([len(depth)]), np.array([depth.sum()]), counts.sum(0)[None], (counts**2 / depth[:, None]).sum(0)[None]
    )


def test_the_test_is_binomial_given_the_depths():
    rng = np.random.default_rng(0)
    depth = rng.uniform(0.5, 2, 40)
    counts = np.ones((40, 1)) * (np.arange(40)[:, None] % 3 == 0)  # Less dispersed than Poisson counts.
    first, second = group(counts[:15], depth[:15]), group(counts[15:], depth[15:])
    scores, change = compare(first, second)
    share = depth[:15].sum() / depth.sum()
    tails = [
        binomtest(int(counts[:15].sum()), int(counts.sum()), share, alternative=one).pvalue
        for one in ("greater", "less")
    ]
    assert abs(scores[0]) == pytest.approx(norm.isf(min(*tails, 0.5)))
    rates = [(part.sum() + 0.5) / d.sum() for part, d in ((counts[:15], depth[:15]), (counts[15:], depth[15:]))]
    assert change[0] == pytest.approx(np.log2(rates[0] / rates[1]))
    np.testing.assert_allclose(compare(second, first), (-scores, -change))


def test_dispersed_counts_say_less():
    rng = np.random.default_rng(1)
    rates = rng.gamma(0.5, 2 / 0.5, (400, 200))  # Means of 2, variances of 10.
    depth = np.ones(400)
    scores, _ = compare(group(rng.poisson(rates)[:200], depth[:200]), group(rng.poisson(rates)[200:], depth[200:]))
    assert scores.std() == pytest.approx(1, abs=0.15)


@pytest.fixture(scope="module")
def alike():
    """Log-normalised cells of one profile at many depths, their seeds, and their halves."""
    rng = np.random.default_rng(2)
    profile = rng.gamma(0.5, size=D) + 0.05
    depth = np.exp(rng.normal(np.log(400), 0.5, N))
    counts = sparse.csr_array(rng.poisson(depth[:, None] * profile / profile.sum()).astype(np.float32))
    values = normalised(counts, 1e4 / np.asarray(counts.sum(1)).ravel())
    seeds = rng.integers(2**62, size=N)
    return values, seeds, halves(recover(values), seeds, 3)


def p_values(alike, leaves, place=slice(None)):
    sums = leaf_sums(leaves, 2, alike[1], alike[0], slice(0, N))
    sums = SideSums(*(part[place] for part in sums))
    return 2 * norm.sf(np.abs(compare(sums.of([0]), sums.of([1]))[0]))


def cut(part, direction):
    """Cells on both sides of the median along a direction of their log-normalised values."""
    score = normalised(part.counts, part.factor) @ direction
    return (score > np.median(score)).astype(np.intp)


def test_a_random_cut_has_uniform_p_values(alike):
    rng = np.random.default_rng(3)
    found = np.concatenate([p_values(alike, rng.integers(2, size=(N, 6)), [0]) for _ in range(25)])
    for level in (0.01, 0.05, 0.2):
        assert 0.5 * level < (found < level).mean() < 1.15 * level
    assert (p_values(alike, rng.integers(2, size=(N, 6))) < 0.05).mean() <= 0.05


def test_cells_that_noise_has_grouped_do_not_differ(alike):
    """A cut of one population by its own noise: the counts that made it differ, and the other half does not."""
    honest, dipped, together = [], [], []
    for seed in range(8):
        direction = np.random.default_rng(seed).normal(size=D)
        leaves = np.stack([cut(part, direction) for pair in alike[2] for part in pair], axis=1)
        honest.append(p_values(alike, leaves, [0]))
        together.append(p_values(alike, leaves))
        dipped.append(p_values(alike, leaves[:, [1, 0, 3, 2, 5, 4]]))
    assert (np.array(dipped) < 0.05).mean() > 0.15
    assert (np.array(honest) < 0.05).mean() < 0.06
    assert (np.array(together) < 0.05).mean() < 0.05


def test_cells_that_are_not_counts_or_have_no_leaf_are_left_out(alike):
    values = alike[0].copy()
    values[[0], :] = values[[0], :] * 1.2345
    leaves = np.zeros((N, 2), dtype=int)
    leaves[1:5] = -1
    sums = leaf_sums(leaves, 2, alike[1], values, slice(0, N))
    assert sums.cells.tolist() == [[N - 5, 0], [N - 5, 0]]
    counted = np.asarray(recover(alike[0]).counts.sum(0)).ravel() - recover(alike[0][:5]).counts.sum(0)
    np.testing.assert_allclose(sums.counts.sum(0)[0], counted)
