"""Offsets of a query under priors in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dice._core.calibrate import (
    SHRINKAGE,
    Offset,
    expected_pull,
    expected_variety,
    fit_offset,
    pull,
    shrunken_means,
    variety,
)
from dice._core.mixture import MixtureDenoiser

K = 6
MEANS = 4.0 * torch.eye(K)[:3] - 4.0 / K


@pytest.fixture(scope="module")
def prior():
    """Three round cell types."""
    return MixtureDenoiser.from_moments(torch.full((3,), 1 / 3), MEANS, 0.1 * torch.eye(K).repeat(3, 1, 1))


def cells(types, n=400, seed=0):
    """Latents (n, k) of cells of some of the types."""
    generator = torch.Generator().manual_seed(seed)
    which = torch.tensor(types)[torch.randint(len(types), (n,), generator=generator)]
    return MEANS[which] + 0.1**0.5 * torch.randn((n, K), generator=generator)


SHIFT = torch.tensor([0.0, 0.0, 0.0, 5.0, -4.0, 3.0])
ONE = np.zeros(400, dtype=np.intp)


@pytest.mark.parametrize("types", [[0, 1, 2], [0], [1, 2]])
def test_the_offset_is_found_whatever_the_composition(prior, types):
    """The mean of the query would be off by the distance between the types."""
    z = cells(types)
    found = fit_offset(prior, z + SHIFT, ONE)[0]
    assert torch.linalg.norm(found - SHIFT) < 0.15 * torch.linalg.norm(SHIFT)


def test_without_an_offset_none_is_found(prior):
    assert torch.linalg.norm(fit_offset(prior, cells([0, 1, 2]), ONE)) < 0.3


def test_batches_have_offsets_of_their_own_and_small_ones_share(prior):
    z, batches = cells([0, 1, 2], n=600), np.repeat([0, 1, 2], [298, 298, 4])
    shifts = torch.stack([SHIFT, -SHIFT, SHIFT])
    found = fit_offset(prior, z + shifts[batches], batches)
    for batch in (0, 1):
        assert torch.linalg.norm(found[batch] - shifts[batch]) < 0.25 * torch.linalg.norm(SHIFT)
    assert torch.linalg.norm(found[2]) < torch.linalg.norm(found[0])


def test_shrunken_means_by_hand():
    values = torch.tensor([[2.0], [4.0], [6.0]])
    whole = 12 / (3 + SHRINKAGE)
    expected = [(6 + SHRINKAGE * whole) / (2 + SHRINKAGE), (6 + SHRINKAGE * whole) / (1 + SHRINKAGE)]
    found = shrunken_means(values, torch.tensor([0, 0, 1]), 2)
    torch.testing.assert_close(found.ravel(), torch.tensor(expected))
    torch.testing.assert_close(shrunken_means(values, torch.zeros(3, dtype=torch.long), 1), torch.tensor([[whole]]))


def test_the_expected_pull_is_that_of_a_gaussian():
    variances = torch.tensor([3.0, 1.0, 0.2])
    gaussian = MixtureDenoiser.from_moments(torch.ones(1), torch.zeros(1, 3), torch.diag(variances)[None])
    z = torch.randn((200_000, 3), generator=torch.Generator().manual_seed(0)) * variances.sqrt()
    assert pull(gaussian, z) == pytest.approx(expected_pull(variances.numpy()), rel=0.01)


def test_variety_is_that_of_a_gaussian_and_small_for_one_kind(prior):
    variances = torch.tensor([3.0, 1.0, 0.2])
    gaussian = MixtureDenoiser.from_moments(torch.ones(1), torch.zeros(1, 3), torch.diag(variances)[None])
    z = torch.randn((200_000, 3), generator=torch.Generator().manual_seed(0)) * variances.sqrt()
    assert variety(gaussian, z) == pytest.approx(expected_variety(variances.numpy()), rel=0.02)
    assert variety(prior, cells([1])) < 0.05 * variety(prior, cells([0, 1, 2]))


def test_a_shifted_query_is_pulled_harder_until_it_is_calibrated(prior):
    z = cells([0, 1]) + SHIFT
    assert pull(prior, z) > 3 * pull(prior, z - fit_offset(prior, z, ONE))


def test_offsets_of_a_range_of_cells():
    offset = Offset(np.array([[1.0], [2.0]], dtype=np.float32), np.array([0, 1, 1, 0]))
    np.testing.assert_array_equal(offset.of(slice(1, 4)).ravel(), [2, 2, 1])
