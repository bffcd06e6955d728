"""How far two clusters are apart: oracles of known distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import norm

from dice._clusters.separation import (
    CELL_FOLDS,
    CONTINUUM,
    MOST_SEPARATE,
    SEPARATIONS,
    TESTABLE,
    Measured,
    agreement,
    distance,
    gene_scores,
    lower_bound,
    separation,
)


def measured(first, second, noise=0.0, seed=0, k=6):
    """Two clusters along the first of k axes, in random order, and noisy halves of their cells."""
    rng = np.random.default_rng(seed)
    values = np.concatenate([first, second])
    whole = rng.normal(size=(len(values), k))
    whole[:, 0] = values
    halves = whole[:, None, None] + noise * rng.normal(size=(len(values), 3, 2, k))
    order = rng.permutation(len(values))
    place = np.argsort(order)
    return Measured(whole[order], halves[order]), place[: len(first)], place[len(first) :]


def test_agreement_and_separation_are_inverse():
    for value in (0.5, 2.0, CONTINUUM, 6.0):
        assert separation(agreement(value)) == pytest.approx(value)
    assert agreement(0.0) == pytest.approx(0.5)
    assert separation(0.5) == pytest.approx(0)
    assert separation(1.0) == MOST_SEPARATE
    error = norm.cdf(-CONTINUUM / 2)
    assert agreement(CONTINUUM) == pytest.approx(error**2 + (1 - error) ** 2)


@pytest.mark.parametrize("length", [30.0, 3000.0])
def test_the_halves_of_an_even_continuum_are_not_told_apart(length):
    """Their means are sqrt(12) apart, and as many cells lie between these as can for normal clusters."""
    values = np.linspace(0, length, 600)
    cells, first, second = measured(values[:300], values[300:])
    expected = (CONTINUUM + SEPARATIONS[0]) / 2
    assert distance(values[:300], values[300:]) == pytest.approx(expected, rel=0.01)
    assert cells.apart(first, second) == pytest.approx(lower_bound(expected, 300, 300), rel=0.03)


def test_the_halves_of_a_normal_cloud_are_closer():
    values = np.sort(np.random.default_rng(1).normal(size=600)) * 20
    cells, first, second = measured(values[:300], values[300:])
    expected = (4 * norm.pdf(0) / np.sqrt(1 - 2 / np.pi) + SEPARATIONS[0]) / 2
    assert cells.apart(first, second) == pytest.approx(lower_bound(expected, 300, 300), rel=0.06)


def test_a_bent_continuum_is_whole():
    """The halves of half a circle are further apart than those of a line, but there are cells in between."""
    angles = np.linspace(0, np.pi, 600)
    rng = np.random.default_rng(8)
    whole = np.column_stack([50 * np.cos(angles), 50 * np.sin(angles), rng.normal(size=(600, 3))])
    order = rng.permutation(600)
    cells = Measured(whole[order], np.repeat(whole[order][:, None], 4, axis=1).reshape(600, 2, 2, 5))
    first, second = (np.flatnonzero(half) for half in (order < 300, order >= 300))
    scores = whole[:, 0]
    assert (scores[:300].mean() - scores[300:].mean()) / scores[:300].std() > 4
    assert cells.apart(first, second) < CONTINUUM


@pytest.mark.parametrize("true", [3.0, 5.0])
def test_normal_clusters_have_their_distance(true):
    rng = np.random.default_rng(2)
    one, other = rng.normal(size=50_000), true + rng.normal(size=50_000)
    assert distance(one, other) == pytest.approx(true, rel=0.03)
    cells, first, second = measured(one[:300], other[:300])
    assert cells.apart(first, second) == pytest.approx(lower_bound(true, 300, 300), rel=0.1)


def test_small_clusters_keep_most_of_their_distance():
    """Nine of ten cells teach the discriminant, so that 20 cells of each cluster are enough in 30 dimensions."""
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        cells, first, second = measured(rng.normal(size=20), 8 + rng.normal(size=20), seed=seed, k=30)
        found.append(cells.apart(first, second))
    assert np.mean(found) > CONTINUUM


def test_halves_that_know_nothing_tell_nothing_apart():
    """Clusters that noise has shaped: whole cells are apart, and halves are not."""
    rng = np.random.default_rng(3)
    cells, first, second = measured(rng.normal(size=300), 8 + rng.normal(size=300))
    alone = Measured(cells.whole, rng.normal(size=cells.halves.shape))
    assert cells.apart(first, second) > 6
    assert alone.apart(first, second) < 0.7


def test_halves_are_corrected_to_the_depth_of_the_cells():
    """Two points with the noise of counts: halves at distance d are cells at distance sqrt(2) d."""
    rng = np.random.default_rng(4)
    codes = np.arange(2000) % 2
    truth = np.stack([3.0 * codes, np.zeros(2000), np.zeros(2000)], axis=1)
    halves = truth[:, None, None] + rng.normal(size=(2000, 1, 2, 3)) * np.sqrt(2)
    cells = Measured(halves.mean((1, 2)), halves)
    first, second = np.flatnonzero(codes == 0), np.flatnonzero(codes == 1)
    assert cells.apart(first, second) == pytest.approx(lower_bound(3.0, 600, 600), rel=0.12)


def test_clusters_that_depth_sets_apart_are_one():
    rng = np.random.default_rng(5)
    cells, first, second = measured(rng.normal(size=200), 8 + rng.normal(size=200))
    same = cells.whole + 0.1 * rng.normal(size=cells.whole.shape)
    assert Measured(cells.whole, cells.halves, ((cells.whole, same),)).apart(first, second) == 0
    elsewhere = (rng.normal(size=same.shape), rng.normal(size=same.shape))
    assert Measured(cells.whole, cells.halves, ((cells.whole, same), elsewhere)).apart(first, second) > 0


def test_few_cells_are_not_told_apart():
    cells, first, second = measured(np.zeros(4), np.full(300, 9.0))
    assert cells.apart(first, second) == 0
    assert cells.apart(second, first) == 0


def test_the_smallest_testable_cluster_is_tested():
    """Six cells teach a discriminant, whichever cluster they are; five do not."""
    rng = np.random.default_rng(9)
    cells, first, second = measured(rng.normal(size=TESTABLE), 30 + rng.normal(size=300))
    assert cells.apart(first, second) > CONTINUUM
    assert cells.apart(second, first) > CONTINUUM
    assert cells.apart(first[1:], second) == cells.apart(second, first[1:]) == 0


def test_few_cells_have_to_be_further_apart():
    """The bound holds for 95 % of samples of two normal clusters, whatever their sizes."""
    rng = np.random.default_rng(6)
    for sizes in ((10, 10), (15, 400)):
        found = []
        for _ in range(2000):
            first, second = (at + rng.normal(size=n) for at, n in zip((0, CONTINUUM), sizes, strict=True))
            apart = (second.mean() - first.mean()) / np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)
            found.append(lower_bound(apart, *sizes))
        assert 0.92 < (np.array(found) < CONTINUUM).mean() < 0.99
    assert lower_bound(CONTINUUM, 10**9, 10**9) == pytest.approx(CONTINUUM, rel=1e-3)


def test_halves_have_a_discriminant_of_their_own():
    """Halves that are spread where cells are not: the direction of the cells would say little of halves."""
    rng = np.random.default_rng(7)
    codes = np.arange(400) % 2
    whole = rng.normal(size=(400, 2)) * [1.0, 0.05]
    whole[:, 0] += 8 * codes
    whole[:, 1] += 0.4 * codes
    halves = whole[:, None, None] + rng.normal(size=(400, 2, 2, 2)) * [0.5, 20.0]
    cells = Measured(whole, halves)
    assert cells.apart(np.flatnonzero(codes == 0), np.flatnonzero(codes == 1)) > 5


def two_profiles(depth, seed=0, n=1200, n_genes=300):
    """Counts of two halves of cells of two profiles that differ in ten genes, their codes, and the exact ratio."""
    rng = np.random.default_rng(seed)
    profiles = np.tile(rng.gamma(0.5, size=n_genes) + 0.05, (2, 1))
    profiles[1, rng.choice(n_genes, 10, replace=False)] *= np.repeat([3, 1 / 3], 5)
    profiles /= profiles.sum(1, keepdims=True)
    codes = np.arange(n) % 2
    depths = depth * rng.lognormal(0, 0.3, size=n)
    halves = [sparse.csr_array(rng.poisson(depths[:, None] / 2 * profiles[codes]).astype(np.float32)) for _ in "12"]
    return halves, codes, np.log(profiles[1] / profiles[0])


def test_gene_scores_are_nearly_as_good_as_the_exact_ratio():
    halves, codes, ratio = two_profiles(depth=300)
    member, counts = codes == 1, halves[0] + halves[1]
    folds = np.random.default_rng(0).integers(CELL_FOLDS, size=len(codes))
    scores = gene_scores(halves, member, folds)
    exact = [part @ ratio for part in (counts, *halves)]
    for score, best in zip((scores.sum(1), *scores.T), exact, strict=True):
        found, most = (distance(x[~member], x[member]) for x in (score, best))
        assert 0.85 * most < found < 1.05 * most
    # Learned from other cells, scores of groups at random know nothing.
    at_random = np.random.default_rng(1).random(len(codes)) < 0.5
    chance = gene_scores(halves, at_random, folds).sum(1)
    assert abs(chance[at_random].mean() - chance[~at_random].mean()) < 0.2 * chance.std()


def test_genes_tell_apart_what_latents_blur():
    halves, codes, _ = two_profiles(depth=600)
    rng = np.random.default_rng(2)
    whole, blurred = rng.normal(size=(1200, 4)), rng.normal(size=(1200, 1, 2, 4))
    clusters = np.flatnonzero(codes == 0), np.flatnonzero(codes == 1)
    assert Measured(whole, blurred).apart(*clusters) < 0.5
    assert Measured(whole, blurred, counts=tuple(halves)).apart(*clusters) > CONTINUUM
    # Both halves have to say so: the noise of one half is no difference of cells.
    shuffled = halves[0], halves[1][rng.permutation(1200)]
    assert Measured(whole, blurred, counts=shuffled).apart(*clusters) < 1
    # Clusters that only depth sets apart have the same profile.
    depths = np.where(codes, 4, 1)[:, None] * np.ones(300)
    same = tuple(sparse.csr_array(rng.poisson(depths).astype(np.float32)) for _ in "12")
    assert Measured(whole, blurred, counts=same).apart(*clusters) < 1
