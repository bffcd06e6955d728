"""Second measurements by halves of the counts."""

from __future__ import annotations

import numpy as np
import pytest

from dice._clusters.remeasure import at_whole_depth


def measured(noise, rng, n=20_000):
    """Cells of a Gaussian prior: denoised whole, denoised halves, and denoised whole once more."""
    clean = rng.normal(size=n)
    halves = clean[:, None] + np.sqrt(2 * noise) * rng.normal(size=(n, 2))
    once_more = clean + np.sqrt(noise) * rng.normal(size=n)
    filter_whole, filter_half = 1 / (1 + noise), 1 / (1 + 2 * noise)
    return filter_whole * halves.mean(1), filter_half * halves, filter_whole * once_more


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0, 10.0])
def test_pairs_differ_as_two_measurements_with_all_counts_do(noise):
    whole, halves, once_more = measured(noise, np.random.default_rng(0))
    again = at_whole_depth(whole[:, None], halves[:, None, :, None])[:, 0, :, 0]
    assert (again[:, 0] - again[:, 1]).var() == pytest.approx((whole - once_more).var(), rel=0.06)
    np.testing.assert_allclose(again.mean(1), whole, atol=1e-5)


def test_every_latent_has_a_reliability_of_its_own():
    rng = np.random.default_rng(1)
    parts = [measured(noise, rng, 2000)[:2] for noise in (0.1, 5.0)]
    alone = [at_whole_depth(whole[:, None], halves[:, None, :, None]) for whole, halves in parts]
    whole, halves = (np.stack(values, axis=-1) for values in zip(*parts, strict=True))
    np.testing.assert_allclose(at_whole_depth(whole, halves[:, None]), np.concatenate(alone, axis=-1), rtol=1e-5)


def test_latents_that_never_vary_stay_where_they_are():
    whole = np.ones((5, 2))
    np.testing.assert_array_equal(at_whole_depth(whole, np.zeros((5, 3, 2, 2))), np.ones((5, 3, 2, 2)))
