"""Offsets of a query under priors in closed form."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracle import ExactMixture

from dice._model.offsets import (
    LEVELS,
    PSEUDO_CELLS,
    Offsets,
    SoftClusters,
    fit_cluster_offsets,
    fit_offset,
    shrunken_means,
    soft_assignment,
    unit,
)

K = 6
MEANS = 4.0 * np.eye(K, dtype=np.float32)[:3] - 4.0 / K


@pytest.fixture(scope="module")
def prior():
    """Three round cell types."""
    means, covariances = torch.as_tensor(MEANS), 0.1 * torch.eye(K).repeat(3, 1, 1)
    network = ExactMixture.from_moments(torch.full((3,), 1 / 3), means, covariances)
    return SimpleNamespace(
        latent_scale=1.0, mean=lambda y, rho: network(torch.as_tensor(y).float(), torch.tensor(rho)).numpy()
    )


def cells(types, n=400, seed=0):
    """Latents (n, k) of cells of some of the types."""
    rng = np.random.default_rng(seed)
    return MEANS[rng.choice(types, n)] + 0.1**0.5 * rng.normal(size=(n, K))


SHIFT = np.array([0.0, 0.0, 0.0, 5.0, -4.0, 3.0])
ONE = np.zeros(400, dtype=np.intp)


@pytest.mark.parametrize("types", [[0, 1, 2], [0], [1, 2]])
def test_the_offset_is_found_whatever_the_composition(prior, types):
    """The mean of the query would be off by the distance between the types."""
    z = cells(types)
    found = fit_offset(prior, z + SHIFT, ONE)[0]
    assert np.linalg.norm(found - SHIFT) < 0.15 * np.linalg.norm(SHIFT)


def test_without_an_offset_none_is_found(prior):
    assert np.linalg.norm(fit_offset(prior, cells([0, 1, 2]), ONE)) < 0.3


def test_batches_have_offsets_of_their_own_and_small_ones_share(prior):
    z, batches = cells([0, 1, 2], n=600), np.repeat([0, 1, 2], [298, 298, 4])
    shifts = np.stack([SHIFT, -SHIFT, SHIFT])
    found = fit_offset(prior, z + shifts[batches], batches, 3)
    for batch in (0, 1):
        assert np.linalg.norm(found[batch] - shifts[batch]) < 0.25 * np.linalg.norm(SHIFT)
    assert np.linalg.norm(found[2]) < np.linalg.norm(found[0])


def test_shrunken_means_by_hand():
    values = np.array([[2.0], [4.0], [6.0]])
    whole = 12 / (3 + PSEUDO_CELLS)
    expected = [(6 + PSEUDO_CELLS * whole) / (2 + PSEUDO_CELLS), (6 + PSEUDO_CELLS * whole) / (1 + PSEUDO_CELLS)]
    np.testing.assert_allclose(shrunken_means(values, np.array([0, 0, 1]), 2).ravel(), expected)
    np.testing.assert_allclose(shrunken_means(values, np.zeros(3, dtype=int)), [[whole]])


def test_offsets_of_a_range_of_cells():
    offset = Offsets(np.array([[[1.0]], [[2.0]]], dtype=np.float32), np.array([0, 1, 1, 0]))
    np.testing.assert_array_equal(offset.of(np.zeros((3, 1), dtype=np.float32), slice(1, 4)).ravel(), [2, 2, 1])


AXES = np.eye(3, dtype=np.float32)
#: Three clusters at distance 10 from the origin, each of variance 1.
KINDS = SoftClusters(AXES, 10 * AXES, np.ones((3, 3), dtype=np.float32))


def of_clusters(counts, shift, seed=0):
    """Cells of each kind, so many and moved by so much."""
    rng = np.random.default_rng(seed)
    which = np.repeat(np.arange(3), counts)
    return (10 * AXES[which] + np.asarray(shift)[which] + rng.normal(size=(len(which), 3))).astype(np.float32), which


def offsets_of(y, batches=None, n_batches=1):
    batches = np.zeros(len(y), dtype=np.intp) if batches is None else batches
    return fit_cluster_offsets(KINDS, y, batches, n_batches)


def test_each_cluster_has_an_offset_of_its_own():
    shift = np.array([[0.0, 4.0, 0.0], [0.0, 0.0, 4.0], [-4.0, 0.0, 0.0]])
    y, which = of_clusters([300, 300, 300], shift)
    shares = KINDS.shares(y)
    np.testing.assert_array_equal(shares.argmax(1), which)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    found = Offsets(offsets_of(y), np.zeros(900, dtype=np.intp), KINDS).of(y, slice(None))
    assert np.abs(found - shift[which]).mean() < 0.25


def test_the_composition_of_a_query_does_not_matter():
    whole, _ = of_clusters([300, 300, 300], np.zeros((3, 3)))
    part, _ = of_clusters([300, 10, 0], np.zeros((3, 3)))
    assert np.linalg.norm(offsets_of(whole), axis=-1).max() < 0.1
    assert np.linalg.norm(offsets_of(part), axis=-1).max() < 0.1


def test_less_than_the_spread_of_a_cluster_may_be_composition():
    y, _ = of_clusters([300, 300, 300], 0.5 * np.ones((3, 3)))
    assert np.linalg.norm(offsets_of(y), axis=-1).max() < 0.5 * np.linalg.norm(0.5 * np.ones(3))


def test_a_single_cluster_far_away_may_be_new():
    shift = np.zeros((3, 3))
    shift[2] = [0.0, 0.0, 40.0]
    y, _ = of_clusters([300, 300, 300], shift)
    assert np.linalg.norm(offsets_of(y)[0, 2]) < 0.1 * 40


def test_small_batches_share_the_offsets_of_all():
    shift = np.tile([0.0, 0.0, 6.0], (3, 1))
    y, _ = of_clusters([300, 300, 0], shift)
    batches = np.zeros(600, dtype=np.intp)
    batches[0] = 2
    found = offsets_of(y, batches, 3)
    for empty_or_small in (1, 2):
        np.testing.assert_allclose(found[empty_or_small, 0], found[0, 0], atol=0.2)


def test_few_cells_have_no_clusters():
    rng = np.random.default_rng(0)
    assert SoftClusters.learn(rng.normal(size=(19, 4)), 0) is None
    assert len(SoftClusters.learn(rng.normal(size=(300, 1)), 0).means) == 2
    clusters = SoftClusters.learn(rng.normal(size=(60, 4)), 0)
    assert clusters.means.shape == (6, 4)
    assert clusters.shares(np.zeros((1, 4))) == pytest.approx(1 / 6)


def test_clusters_of_well_separated_cells_are_their_types():
    y, _ = of_clusters([200, 200, 200], np.zeros((3, 3)))
    clusters = SoftClusters.learn(y, 0)
    nearest = clusters.means.argmax(1)
    np.testing.assert_allclose(clusters.means, 10 * AXES[nearest], atol=2.5)
    assert set(nearest) == {0, 1, 2}


def test_soft_assignment_by_hand():
    """Squared distances of unit vectors are 2 - 2 cos; shares fall off with exp(-distance / 0.1)."""
    angles = np.array([[1.0, 0.0], [np.cos(0.1), np.sin(0.1)]])
    directions = np.array([[1.0, 0.0], [np.cos(0.3), np.sin(0.3)]])
    squares = np.square(angles[:, None] - directions).sum(2)
    exact = np.exp(-squares / 0.1)
    np.testing.assert_allclose(soft_assignment(angles, directions), exact / exact.sum(1, keepdims=True))
    np.testing.assert_allclose(unit(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0, 0]])


#: The same without any spread: nothing could be composition.
POINTS = SoftClusters(AXES, 10 * AXES, np.zeros((3, 3), dtype=np.float32))


def stretched(lengths, n=100):
    """Cells of each kind that lie so much farther out, in the same direction, so that their shares stay."""
    return np.repeat((10 + np.array(lengths, dtype=np.float32))[:, None] * AXES, n, axis=0)


def test_offsets_of_stretched_cells_by_hand():
    """So many of a hundred cells' own offset, and five cells without one; no longer than three times the median."""
    found = fit_cluster_offsets(POINTS, stretched([1, 2, 30]), np.zeros(300, dtype=np.intp))
    np.testing.assert_allclose(found[0], np.array([1, 2, 3 * 2])[:, None] * 100 / 105 * AXES, atol=1e-4)
    wide = fit_cluster_offsets(KINDS, stretched([1, 2, 30]), np.zeros(300, dtype=np.intp))
    own = np.array([1, 2, 30]) * 100 / 105
    expected = own**3 / (own**2 + 2)
    np.testing.assert_allclose(wide[0], np.minimum(expected, 3 * expected[1])[:, None] * AXES, atol=1e-4)
    one = SoftClusters(AXES[:1], 10 * AXES[:1], np.zeros((1, 3), dtype=np.float32))
    assert not fit_cluster_offsets(one, stretched([0, 0, 0])[:100], np.zeros(100, dtype=np.intp)).any()
    moved = Offsets(found, np.zeros(300, dtype=np.intp), POINTS).of(stretched([1, 2, 30]), slice(0, 300))
    np.testing.assert_allclose(moved, np.repeat(found[0, np.arange(3)], 100, axis=0), atol=1e-4)


def test_offsets_of_batches_by_hand():
    y = np.concatenate([stretched([1, 1, 1]), stretched([3, 3, 3], n=10)])
    found = fit_cluster_offsets(POINTS, y, np.repeat([0, 1], [300, 30]), 2)
    whole = (100 * 1 + 10 * 3) / 115
    for batch, own in ((0, (100 + 5 * whole) / 105), (1, (30 + 5 * whole) / 15)):
        np.testing.assert_allclose(found[batch], own * AXES, atol=1e-4)


def test_noise_falls_by_the_same_factor_from_level_to_level():
    """From four latent scales down to one, at which every type has its own latents."""
    assert (LEVELS[0], LEVELS[-1]) == (4.0, 1.0)
    np.testing.assert_allclose(np.divide(LEVELS[:-1], LEVELS[1:]), 4 ** (1 / 4), rtol=0.02)
