"""Coverage of prediction sets and rates of discoveries where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dice._labels.novel_cells import discoveries, fewest_discoveries, p_values
from dice._labels.sets import adaptive_scores, label_p_values, too_few


def mixture(n, weights, seed, sharpness=1.5):
    """Cells of a Gaussian mixture on a line with their labels and exact class probabilities."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(len(weights), n, p=weights)
    y = sharpness * codes + rng.normal(size=n)
    density = np.asarray(weights) * stats.norm.pdf(y[:, None] - sharpness * np.arange(len(weights)))
    return y, codes, density / density.sum(1, keepdims=True), rng.random(n)


def covered(alpha, method, *, seed, n=400, m=300, weights=(0.5, 0.3, 0.2), distort=1.0, **options):
    """Whether the true label is in the set, for `n` query cells; `distort` spoils the probabilities."""
    _, codes, probabilities, u = mixture(n + m, weights, seed)
    spoiled = probabilities**distort
    spoiled /= spoiled.sum(1, keepdims=True)
    scores = 1 - spoiled if method == "lac" else adaptive_scores(spoiled, u)
    p = label_p_values(scores[m:], scores[:m], codes[:m], **options)
    return p[np.arange(n), codes[m:]] > alpha, codes[m:], p


@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("distort", [1.0, 0.3])
def test_marginal_coverage_is_exact(method, alpha, distort):
    """Over many calibration sets the mean coverage lies in [1 - alpha, 1 - alpha + 1 / (m + 1)]."""
    rates = [covered(alpha, method, seed=seed, distort=distort)[0].mean() for seed in range(150)]
    error = 4 * np.std(rates) / np.sqrt(len(rates))
    # With ties impossible coverage is exact up to 1 / (m + 1); LAC of exact probabilities has none either.
    assert 1 - alpha - error <= np.mean(rates) <= 1 - alpha + 1 / 301 + error


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_coverage_of_every_class(method):
    alpha, hits, seen = 0.1, np.zeros(3), np.zeros(3)
    for seed in range(100):
        inside, codes, _ = covered(alpha, method, seed=seed, weights=(0.7, 0.2, 0.1), per_class=True)
        hits += np.bincount(codes, inside, minlength=3)
        seen += np.bincount(codes, minlength=3)
    rates = hits / seen
    assert (rates > 1 - alpha - 0.015).all()
    assert (rates < 1 - alpha + 0.05).all()


def test_marginal_sets_fail_rare_classes_which_per_class_sets_mend():
    """The reason for per-class calibration: without it a rare class pays for a common one."""
    rate = {}
    for per_class in (False, True):
        runs = [covered(0.1, "lac", seed=s, weights=(0.85, 0.1, 0.05), per_class=per_class) for s in range(60)]
        inside, codes = (np.concatenate([run[i] for run in runs]) for i in (0, 1))
        rate[per_class] = inside[codes == 2].mean()
    assert rate[False] < 0.8
    assert rate[True] > 0.88


def test_p_values_by_hand():
    calibration = np.array([0.1, 0.2, 0.2, 0.9])
    np.testing.assert_allclose(p_values(np.array([0.05, 0.2, 0.5, 1.0]), calibration), [1.0, 0.8, 0.4, 0.2])
    assert p_values(np.array([0.3]), np.empty(0)) == 1


def test_p_values_of_exchangeable_cells_are_uniform():
    rng = np.random.default_rng(0)
    draws = [p_values(rng.normal(size=1), rng.normal(size=99))[0] for _ in range(2000)]
    assert stats.kstest(draws, "uniform").pvalue > 1e-3


def test_scores_follow_their_definitions():
    p = np.array([[0.2, 0.5, 0.3]])
    np.testing.assert_allclose(adaptive_scores(p, np.ones(1)), [[1.0, 0.5, 0.8]])
    np.testing.assert_allclose(adaptive_scores(p, np.array([0.5])), [[0.9, 0.25, 0.65]])


def test_classes_that_cannot_be_excluded():
    np.testing.assert_array_equal(too_few(np.array([0] * 20 + [1] * 8), 3, 0.1), [False, True, True])
    # The p-value of a label beyond nine cells is 1 / 10: not above alpha, so that the label is left out.
    assert not too_few(np.zeros(9, dtype=int), 1, 0.1).any()
    assert not p_values(np.array([1.0]), np.zeros(9)) > 0.1


def test_benjamini_hochberg_by_hand_and_by_rate():
    p = np.array([0.5, 0.01, 0.03, 0.04])
    np.testing.assert_array_equal(discoveries(p, 0.05), [False, True, False, False])
    np.testing.assert_array_equal(discoveries(p, 0.06), [False, True, True, True])
    assert not discoveries(np.empty(0), 0.1).size
    # A p-value that equals its bound is a discovery.
    np.testing.assert_array_equal(discoveries(np.array([0.25, 0.5, 1.0]), 0.75), [True, True, False])
    rng, rates = np.random.default_rng(0), []
    for _ in range(300):
        null = rng.random(90)
        found = discoveries(np.append(null, rng.random(10) * 1e-3), 0.2)
        rates.append(found[:90].sum() / max(found.sum(), 1))
    assert np.mean(rates) < 0.2 + 3 * np.std(rates) / np.sqrt(300)


@pytest.mark.parametrize(("n", "m"), [(1000, 100), (1000, 999), (50, 20), (7, 200)])
def test_no_fewer_can_be_discovered(n, m):
    fewest = fewest_discoveries(n, m, 0.1)
    p = np.ones(n)
    p[: min(fewest, n)] = 1 / (m + 1)
    assert discoveries(p, 0.1).sum() == (fewest if fewest <= n else 0)
    p[min(fewest, n) - 1] = 1
    assert not discoveries(p, 0.1).any()
