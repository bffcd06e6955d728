"""Groups of cells that are unlike the reference, where their cells are not."""

from __future__ import annotations

import numpy as np

from dice._core.labels.novel_groups import compare_groups, split
from dice._core.labels.novelty import Groups


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
    codes = np.where(np.arange(300) < 10, 8, codes)
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
