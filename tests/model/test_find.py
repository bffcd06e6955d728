"""Offsets of a query by the strategy that is named, for all cells and by batch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracle import ExactMixture

import dice
from dice._model.offsets import SoftClusters, find_offsets, fit_cluster_offsets

K, SCALE = 3, 2.0
MEANS = 3 * np.eye(3, dtype=np.float32) - 1
NETWORK = ExactMixture.from_moments(torch.ones(3) / 3, torch.as_tensor(MEANS), 0.05 * torch.eye(3).repeat(3, 1, 1))


def cells(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return (SCALE * (MEANS[rng.integers(3, size=n)] + 0.05**0.5 * rng.normal(size=(n, K)))).astype(np.float32)


CLUSTERS = SoftClusters.learn(cells(600, seed=9), 0)


def clean(y, rho):
    return SCALE * NETWORK(torch.as_tensor(y).float() / SCALE, torch.tensor(rho / SCALE)).numpy()


def prior(clusters=CLUSTERS):
    variances = cells(2000, seed=8).var(0)
    return SimpleNamespace(soft_clusters=clusters, latent_scale=SCALE, latent_variances=variances, mean=clean)


ONE = np.zeros(300, dtype=np.intp)
AWAY = np.array([6.0, -8.0, 9.0], dtype=np.float32)


def test_strategies_that_are_named():
    y = cells()
    for known in (prior(), prior(None)):
        mean = find_offsets(known, y + AWAY, ONE, "mean")
        np.testing.assert_allclose(mean.offsets[0, 0], (y + AWAY).mean(0) * 300 / 320, rtol=1e-3)
        one = find_offsets(known, y + AWAY, ONE, "offset")
        assert one.offsets.shape == (1, 1, K)
        np.testing.assert_allclose(one.offsets[0, 0], AWAY, atol=2.0)
    many = find_offsets(prior(), y, ONE, "clusters")
    np.testing.assert_array_equal(many.offsets, fit_cluster_offsets(CLUSTERS, y, ONE))
    with pytest.raises(dice.DiceError, match=r"needs a prior with soft clusters.*pass shift='offset'"):
        find_offsets(prior(None), y, ONE, "clusters")


def test_batches_have_offsets_of_their_own():
    y, batches = cells(), np.repeat([0, 1], 150)
    order = np.random.default_rng(3).permutation(300)
    moved = y + (batches == 0)[:, None].astype(np.float32) * AWAY
    found = find_offsets(prior(), moved[order], batches[order], "offset", n_batches=3)
    assert found.offsets.shape == (3, 1, K)
    first, second, absent = found.offsets[:, 0]
    assert np.linalg.norm(first - AWAY) < np.linalg.norm(second - AWAY)
    assert np.linalg.norm(second) < np.linalg.norm(absent) < np.linalg.norm(first)
