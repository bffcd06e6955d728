"""Which offsets a query gets: at the bounds, by batch, and by the strategy that is asked for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracle import ExactMixture

import dice
from dice._core.shift.choice import _combined, choose, find_offsets
from dice._core.shift.offsets import Offsets, fit_cluster_offsets
from dice._core.shift.soft_clusters import SoftClusters

K, SCALE, CPU = 3, 2.0, torch.device("cpu")
MEANS = 3 * np.eye(3, dtype=np.float32) - 1
NETWORK = ExactMixture.from_moments(torch.ones(3) / 3, torch.as_tensor(MEANS), 0.05 * torch.eye(3).repeat(3, 1, 1))


def cells(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return (SCALE * (MEANS[rng.integers(3, size=n)] + 0.05**0.5 * rng.normal(size=(n, K)))).astype(np.float32)


CLUSTERS = SoftClusters.learn(cells(600, seed=9), 0)


def prior(clusters=CLUSTERS):
    variances = cells(2000, seed=8).var(0)
    return SimpleNamespace(
        soft_clusters=clusters, latent_scale=SCALE, latent_variances=variances, denoiser_on=lambda device: NETWORK
    )


ONE = np.zeros(300, dtype=np.intp)
AWAY = np.array([6.0, -8.0, 9.0], dtype=np.float32)


@pytest.mark.parametrize(
    ("norms", "varied", "chosen"),
    [
        ({"none": 1.2}, 1.0, "none"),
        ({"none": 1.2, "clusters": 1.0}, 1.0, "clusters"),
        ({"none": 1.21, "offset": 1.05, "clusters": 1.0}, 1.0, "offset"),
        ({"none": 2.0, "offset": 1.5}, 1.0, "none"),
        ({"none": 2.0, "offset": 1.49}, 1.0, "offset"),
        ({"none": 2.0, "offset": 1.0}, 0.2, "none"),
        ({"none": 2.0, "offset": 1.0}, 0.21, "offset"),
    ],
)
def test_choices_at_their_bounds(norms, varied, chosen):
    """A fifth more than expected is a shift; half of it has to be explained, and a fifth of the variety left."""
    assert choose({"expected": 1.0, **norms}, varied) == chosen


def test_a_shifted_query_gets_one_offset_and_others_those_of_clusters():
    y = cells()
    offsets, record = find_offsets(prior(), y + AWAY, ONE, "auto", CPU)
    assert record["strategy"] == "offset"
    np.testing.assert_allclose(offsets.offsets[0, 0], AWAY, atol=2.0)
    offsets, record = find_offsets(prior(), y, ONE, "auto", CPU)
    assert record["strategy"] == "clusters"
    np.testing.assert_array_equal(offsets.offsets, fit_cluster_offsets(CLUSTERS, y, ONE))
    assert find_offsets(prior(None), y, ONE, "auto", CPU)[0] is None
    assert find_offsets(prior(), y[:0], ONE[:0], "auto", CPU) == (None, {"strategy": "none"})


def test_strategies_that_are_asked_for():
    y = cells()
    for known in (prior(), prior(None)):
        mean, record = find_offsets(known, y + AWAY, ONE, "mean", CPU)
        np.testing.assert_allclose(mean.offsets[0, 0], (y + AWAY).mean(0) * 300 / 320, rtol=1e-3)
        assert record["strategy"] == "mean"
        one, _ = find_offsets(known, y + AWAY, ONE, "offset", CPU)
        assert one.offsets.shape == (1, 1, K)
    many, record = find_offsets(prior(), y, ONE, "clusters", CPU)
    assert many.offsets.shape == (1, len(CLUSTERS.means), K)
    assert set(record["score_norm"]) == {"none", "clusters", "expected"}
    with pytest.raises(dice.DiceError, match=r"The prior has no soft clusters.*pass shift='offset'"):
        find_offsets(prior(None), y, ONE, "clusters", CPU)


def test_batches_choose_for_themselves():
    """A batch of its own technology, one of the reference's, and one that is too small to say."""
    y, batches = cells(), np.repeat([0, 1, 2], [140, 140, 20])
    order = np.random.default_rng(3).permutation(300)
    moved = y + np.where(batches == 0, 1, 0)[:, None].astype(np.float32) * AWAY
    offsets, record = find_offsets(prior(), moved[order], batches[order], "auto", CPU)
    assert list(record["strategies"][:2]) == ["offset", "clusters"]
    assert record["strategy"] == "mixed"
    assert offsets.offsets.shape == (3, len(CLUSTERS.means), K)


def test_offsets_of_batches_are_put_together():
    one = Offsets(np.full((3, 1, 2), 5.0, np.float32), ONE)
    many = Offsets(np.arange(12, dtype=np.float32).reshape(3, 2, 2), ONE)
    found = {"offset": one, "clusters": many}
    assert _combined(found, ["none", "none", "none"]) is None
    both = _combined(found, ["none", "offset", "clusters"]).offsets
    np.testing.assert_array_equal(both, [np.zeros((2, 2)), np.full((2, 2), 5), many.offsets[2]])
    np.testing.assert_array_equal(_combined(found, ["none", "offset", "none"]).offsets, [[[0, 0]], [[5, 5]], [[0, 0]]])
