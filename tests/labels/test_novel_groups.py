"""Groups of cells that are unlike the reference, where their cells are not."""

from __future__ import annotations

import numpy as np

from dice._labels.novelty import Displaced, Groups, _allowance, compare_groups, displacement, split


def cells(n, rng, centres):
    codes = rng.integers(len(centres), size=n)
    return centres[codes] + rng.normal(size=(n, centres.shape[1])), codes


def learned(rng, n_labels=8, k=10):
    centres = 4 * rng.normal(size=(n_labels, k))
    return centres, Groups.of(*cells(2000, rng, centres))


def test_a_group_is_found_whose_cells_are_not():
    """0.8 standard deviations beside a known type in every direction: usual for a cell, and not for a mean."""
    rng = np.random.default_rng(0)
    centres, groups = learned(rng)
    calibration, known = cells(400, rng, centres)
    query, codes = cells(400, rng, centres)
    beside = centres[0] + np.full(10, 0.8) + rng.normal(size=(40, 10))
    p, displaced, allowed = compare_groups(
        groups, np.concatenate([query, beside]), np.append(codes, np.full(40, 8)), calibration, known
    )
    assert p[8] < 0.005
    assert displaced[8] > 2 * allowed
    assert (p[:8] > 0.01).all()


def test_known_groups_have_p_values_that_are_not_too_small():
    rng, found = np.random.default_rng(1), []
    for _ in range(20):
        centres, groups = learned(rng)
        found.append(compare_groups(groups, *cells(400, rng, centres), *cells(400, rng, centres))[0])
    p = np.concatenate(found)
    assert (p <= 0.1).mean() <= 0.1
    assert (p <= 0.01).mean() <= 0.02


def test_parts_of_known_types_are_allowed_for():
    """Clusters that halve a type are displaced, but no more than halves of calibration cells."""
    rng = np.random.default_rng(2)
    centres, groups = learned(rng)
    (query, codes), (calibration, known) = cells(1600, rng, centres), cells(800, rng, centres)
    halves = split(query, codes, np.full(8, 2))
    assert set(halves) == set(range(16))
    p, displaced, allowed = compare_groups(groups, query, halves, calibration, known)
    assert np.median(displaced) > 0.02
    assert allowed > 0.02
    assert (p > 0.005).all()


def test_too_few_cells_are_not_tested():
    rng = np.random.default_rng(3)
    centres, groups = learned(rng)
    query, codes = cells(300, rng, centres)
    codes = np.where(np.arange(300) < 9, 8, codes)
    calibration, known = cells(300, rng, centres)
    p = compare_groups(groups, query, codes, calibration, known)[0]
    assert np.isnan(p[8])
    assert not np.isnan(p[:8]).any()
    p, _, allowed = compare_groups(groups, query, codes, calibration[:3], known[:3])
    assert np.isnan(p).all()
    assert np.isnan(allowed)


def test_cells_without_a_group():
    rng = np.random.default_rng(4)
    centres, groups = learned(rng)
    query, _ = cells(50, rng, centres)
    calibration, known = cells(300, rng, centres)
    assert compare_groups(groups, query, np.full(50, -1), calibration, known)[0].shape == (0,)


def displaced(excess, by_chance=0.1, directions=5.0):
    excess = np.asarray(excess, dtype=float)
    same = np.ones_like(excess)
    return Displaced(excess + by_chance, by_chance * same, directions * same, np.zeros(len(excess), dtype=int))


def test_noise_and_freedom_by_hand():
    found = displaced([0.2])
    np.testing.assert_allclose(found.noise(0.2), 0.1 * (0.1 + 0.4) * 2 / 5)
    np.testing.assert_allclose(found.freedom(0.2, 0.03), 2 * 0.3**2 / 0.05)
    np.testing.assert_allclose(found.freedom(0.2, 0.0), 5)
    np.testing.assert_allclose(found.freedom(0.2, 10.0), 1)


def test_what_known_groups_may_have_by_hand():
    """At least 0.04 of the variance; else one and a half of the mean and its standard error."""
    allowed, spread, freedom = _allowance(displaced([0.0, 0.0]))
    assert (allowed, spread) == (0.04, 0.0)
    assert freedom == 10  # Of two parts, all five directions each.
    excess = np.array([0.0, 1.0, 2.0, 1.0])
    allowed, spread, _ = _allowance(displaced(excess))
    mean = 1 + np.sqrt(0.5 / 4)
    np.testing.assert_allclose(allowed, 1.5 * mean)
    np.testing.assert_allclose(spread, 1.5**2 * (0.5 - 0.1 * (0.1 + 2 * mean) * 2 / 5))
    assert _allowance(displaced([-0.5, -0.5]))[0] == 0.04


def test_displacement_by_hand():
    """The mean of a group that is two away from a known mean, in units of the variance of its cells."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(500, 2))
    groups = Groups.of(y, np.zeros(500, dtype=int))
    cells_beside = y[:50] + np.array([2.0, 0.0])
    found = displacement(groups, cells_beside, np.zeros(50, dtype=int), np.zeros(1))
    offsets = cells_beside @ groups.whiten - groups.means[0]
    covariance = np.cov(offsets.T)
    np.testing.assert_allclose(found.square, (offsets.mean(0) ** 2).sum() / np.trace(covariance), rtol=1e-3)
    np.testing.assert_allclose(found.by_chance, 1 / 50 + 1 / 500, rtol=1e-3)
    np.testing.assert_allclose(found.directions, np.trace(covariance) ** 2 / (covariance**2).sum(), rtol=1e-3)
    assert found.label == 0
    wide = displacement(groups, cells_beside, np.zeros(50, dtype=int), np.array([100.0]))
    np.testing.assert_allclose(wide.square, (offsets.mean(0) ** 2).sum() / 100, rtol=1e-3)
    few = displacement(groups, y[:4], np.zeros(4, dtype=int), np.zeros(1))
    assert np.isnan(few.square).all()
    assert not np.isnan(displacement(groups, y[:5], np.zeros(5, dtype=int), np.zeros(1)).square).any()
