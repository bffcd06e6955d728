"""Displacements of groups, against simulated groups and loops over cells."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dice._labels import novelty


def simulated(n_labels=4, n=60, k=5, seed=0):
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(n_labels, k))
    codes = np.repeat(np.arange(n_labels), n)
    return centres, codes, centres[codes] + rng.normal(size=(len(codes), k))


@pytest.mark.parametrize("allowed", [0.0, 0.05, 0.5])
def test_the_noise_of_a_displacement_is_that_of_a_random_mean(allowed):
    """The square of a normal mean around a displacement has this variance, and nearly this chi-squared law."""
    k, by_chance = 6, 0.1
    rng = np.random.default_rng(0)
    centre = np.sqrt(allowed / k) * np.ones(k)
    square = ((centre + np.sqrt(by_chance / k) * rng.normal(size=(200_000, k))) ** 2).sum(1)
    found = novelty.Displaced(*(np.array([value]) for value in (square[0], by_chance, float(k), 0)))
    assert found.noise(allowed)[0] == pytest.approx(square.var(), rel=0.03)
    freedom = found.freedom(allowed, 0.0)[0]
    assert 1 <= freedom <= k
    if not allowed:
        assert freedom == pytest.approx(k)
        assert stats.kstest(square * freedom / by_chance, stats.chi2(freedom).cdf).statistic < 0.01
    # A spread of the displacement itself leaves fewer degrees of freedom.
    assert found.freedom(allowed, 1.0)[0] < freedom or freedom == 1


def test_displacements_by_a_loop_over_groups():
    _, codes, y = simulated()
    groups = novelty.Groups.of(y, codes)
    rng = np.random.default_rng(1)
    query_codes = rng.integers(5, size=90)
    query_codes[query_codes == 4] = np.where(np.arange((query_codes == 4).sum()) < 3, 4, 0)
    query = rng.normal(size=(90, 5)) + y[rng.integers(len(y), size=90)]
    scatter = np.linspace(3, 6, 4)
    found = novelty.displacement(groups, query, query_codes, scatter, least=5)
    offsets, shares = groups.offsets(query)
    for code in range(5):
        mine = query_codes == code
        if mine.sum() < 5:
            assert np.isnan(found.square[code])
            assert found.label[code] == -1
            continue
        share, covariance = shares[mine].mean(0), np.cov(offsets[mine].T)
        variance = max(np.trace(covariance), share @ scatter)
        assert found.square[code] == pytest.approx((offsets[mine].mean(0) ** 2).sum() / variance)
        assert found.by_chance[code] == pytest.approx(1 / mine.sum() + sum(share**2 / groups.counts))
        values = np.linalg.eigvalsh(covariance)
        assert found.directions[code] == pytest.approx(values.sum() ** 2 / (values**2).sum())
        assert found.label[code] == share.argmax()
    np.testing.assert_allclose(found.excess, found.square - found.by_chance)
    assert len(found.known().square) == (~np.isnan(found.square)).sum()
    exactly = int((query_codes == 4).sum())
    assert not np.isnan(novelty.displacement(groups, query, query_codes, scatter, least=exactly).square[4])


def test_a_new_group_is_displaced_and_a_known_one_is_not():
    centres, codes, y = simulated(n=80)
    groups = novelty.Groups.of(y, codes)
    rng = np.random.default_rng(2)
    new = np.r_[centres, centres.mean(0, keepdims=True) + 8]
    query_codes = np.repeat(np.arange(5), 40)
    query = new[query_codes] + rng.normal(size=(200, 5))
    calibration, known = centres[codes] + rng.normal(size=y.shape), codes
    p, displaced, allowed = novelty.compare_groups(groups, query, query_codes, calibration, known)
    assert p[4] < 1e-3
    assert (p[:4] > 0.01).all()
    assert displaced.argmax() == 4
    assert allowed >= novelty.LEAST_ALLOWED
    assert np.isnan(novelty.compare_groups(groups, query[:3], query_codes[:3], calibration, known)[0]).all()


def test_parts_of_groups_are_neither_empty_nor_mixed():
    _, codes, y = simulated(n=45)
    codes = np.where(np.arange(len(codes)) % 7 == 0, -1, codes)
    parts = novelty.split(y, codes, np.array([1, 2, 3, 99]))
    assert ((parts < 0) == (codes < 0)).all()
    for part in range(parts.max() + 1):
        assert len(np.unique(codes[parts == part])) == 1
    counts = [len(np.unique(parts[codes == code])) for code in range(4)]
    most = (codes == 3).sum() // (2 * novelty.LEAST_KNOWN)
    assert counts == [1, 2, 3, most]
    few = novelty.split(y[:3], np.zeros(3, int), np.array([2]))
    assert (few == 0).all()


def test_the_number_of_clusters_follows_the_number_of_cells():
    y = np.random.default_rng(0).normal(size=(400, 3))
    for n in (1, novelty.CLUSTER_SIZE, 3 * novelty.CLUSTER_SIZE - 1, 3 * novelty.CLUSTER_SIZE, 400):
        wanted = min(max(n // novelty.CLUSTER_SIZE, 1), novelty.N_CLUSTERS)
        assert len(np.unique(novelty.cluster(y[:n]))) == wanted
