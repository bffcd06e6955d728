"""Distances to groups, doubt, and the rate of false discoveries."""

from __future__ import annotations

import numpy as np
import pytest

from dice._labels.novel_cells import discoveries, p_values
from dice._labels.novelty import Groups, cluster, novelty_scores, within_groups
from dice._model.arrays import auc, separation


def cells(n, rng, n_groups=3):
    """Groups on the axes, much wider in the last two directions than between each other."""
    codes = rng.integers(n_groups, size=n)
    spread = np.array([0.3, 0.3, 0.3, 3, 3])
    return 2 * np.eye(3, 5)[codes] + spread * rng.normal(size=(n, 5)), codes


def strangers(n, rng):
    return np.array([-1.5, -1.5, -1.5, 0, 0]) + np.array([0.3, 0.3, 0.3, 3, 3]) * rng.normal(size=(n, 5))


def test_distance_counts_in_units_of_the_scatter_within_groups():
    """Wide directions say nothing: plain distances could not see these strangers."""
    rng = np.random.default_rng(0)
    y, codes = cells(2000, rng)
    groups = Groups.of(y, codes)
    known, _ = cells(500, rng)
    features = groups.features(known)
    np.testing.assert_allclose(np.exp(features[:, 0]).mean(), 5, rtol=0.1)
    new = strangers(200, rng)
    assert auc(features[:, 0], groups.features(new)[:, 0]) > 0.99
    middle = np.full((1, 5), 2 / 3) * [1, 1, 1, 0, 0]
    assert groups.features(middle)[0, 1] > np.quantile(features[:, 1], 0.95)


def test_clusters_stand_in_for_labels():
    rng = np.random.default_rng(1)
    y, _ = cells(900, rng)
    scores = novelty_scores(Groups.of(y, cluster(y)), strangers(200, rng), cells(300, rng)[0])
    assert auc(scores[1], scores[0]) > 0.9
    np.testing.assert_array_equal(cluster(y), cluster(y))
    assert set(cluster(y[:5])) == {0}


def test_false_discovery_rate_over_calibration_sets():
    """The rate holds on average over calibration and query: at a nominal 0.1 it is at most that."""
    rng, rates, power = np.random.default_rng(2), [], []
    groups = Groups.of(*cells(1500, rng))
    for _ in range(150):
        known, new = cells(270, rng)[0], strangers(30, rng)
        score, ranked = novelty_scores(groups, np.concatenate([known, new]), cells(300, rng)[0])
        found = discoveries(p_values(score, ranked), 0.1)
        rates.append(found[:270].sum() / max(found.sum(), 1))
        power.append(found[270:].mean())
    assert np.mean(rates) < 0.1 + 3 * np.std(rates) / np.sqrt(len(rates))
    assert np.mean(power) > 0.9


def test_a_cell_of_one_group_and_a_single_cell_group():
    y = np.random.default_rng(3).normal(size=(40, 3))
    codes = np.zeros(40, dtype=int)
    assert np.isfinite(Groups.of(y, codes).features(y)).all()
    codes[0] = 5
    assert np.isfinite(Groups.of(y, codes).features(y)).all()


def test_shift_is_none_for_the_same_cells_and_large_for_others():
    rng = np.random.default_rng(4)
    same = separation(rng.normal(size=(800, 4)), rng.normal(size=(600, 4)), 0)
    assert same == pytest.approx(0.5, abs=0.05)
    other = separation(rng.normal(size=(800, 4)), rng.normal(size=(600, 4)) + 1.0, 0)
    assert other == pytest.approx(0.921, abs=0.04)  # the normal distribution function at 2 / sqrt(2)


def test_whitening_by_hand():
    """Two groups that scatter along one axis; a direction without scatter has a thousandth of the mean variance."""
    y = np.array([[0.0, 5.0], [2.0, 5.0], [10.0, 7.0], [14.0, 7.0]])
    whiten = within_groups(y, np.array([0, 0, 1, 1]))
    variances, mean = np.array([2.5, 0.0]), 1.25
    np.testing.assert_allclose(np.linalg.inv(whiten @ whiten.T), np.diag(variances + 1e-3 * mean), rtol=1e-6)


def test_scores_are_in_standard_deviations_of_the_calibration_cells():
    rng = np.random.default_rng(6)
    groups = Groups.of(*cells(300, rng))
    query, known = cells(40, rng)[0], cells(60, rng)[0]
    scores, ranked = novelty_scores(groups, query, known)
    features, centre, spread = groups.features(query), groups.features(known).mean(0), groups.features(known).std(0)
    np.testing.assert_allclose(scores, ((features - centre) / spread).mean(1))
    assert ranked.mean() == pytest.approx(0, abs=1e-9)
    # Calibration cells that are all the same have no spread: whatever differs is novel, and nothing is not a number.
    scores, ranked = novelty_scores(groups, query, known[[0, 0, 0]])
    np.testing.assert_allclose(ranked, 0, atol=1e-5)
    np.testing.assert_allclose(scores, (features - groups.features(known[:1])).mean(1) / 1e-9, rtol=1e-5)


def test_features_of_a_cell_at_a_mean_are_bounded():
    """A cell at the mean of its group has no distance, and the surest one leaves a doubt of a thousandth."""
    y = np.concatenate([np.zeros((30, 2)), np.full((30, 2), 50.0)]) + np.tile(
        [[1e-3, 0], [-1e-3, 0], [0, 1e-3]], (20, 1)
    )
    groups = Groups.of(y, np.repeat([0, 1], 30))
    features = groups.features(np.concatenate([y[:30].mean(0)[None], [[-1e4, -1e4]]]))
    assert features[0, 0] == pytest.approx(np.log(1e-12), abs=15)
    assert features[1, 1] == pytest.approx(np.log(1e-3), abs=1e-3)


def test_scores_of_equal_cells_have_equal_p_values():
    """Rounding decided on which side of a calibration cell its copy was."""
    known = np.array([0.5, 1.0, 2.0])
    for rounding in (-1e-6, 0, 1e-6):
        np.testing.assert_array_equal(p_values(np.array([1.0 + rounding, 3.0]), known), [0.75, 0.25])
