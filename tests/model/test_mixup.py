"""Same-class mixup: what it keeps, what it shrinks, and whom it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dice._model.training_data import Batches
from dice.options import Mixup

N, K = 3000, 4


def cells(seed=0):
    """Two groups of cells with different means and spreads."""
    rng = np.random.default_rng(seed)
    groups = np.arange(N) % 2
    values = rng.normal(size=(N, K)) * np.array([1.0, 2.0])[groups, None] + 20 * groups[:, None]
    return torch.as_tensor(values, dtype=torch.float32), groups


def draw(latents, labels, size=60_000, seed=0, **settings):
    """Many mixtures, with the group of the cell that each stands for."""
    sampler = Batches(latents, labels, Mixup(**settings))
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([sampler.draw(2000, generator) for _ in range(size // 2000)]).numpy()


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, 1 / 3),
        ({"points": 2}, 2 / 3),
        ({"points": 10}, 2 / 11),
        ({"concentration": 4.0}, 5 / 21),
        ({"concentration": 0.2}, 1.2 / 2.0),
        ({"concentration": 0.01, "points": 2}, 1.01 / 1.02),
    ],
)
def test_variance_within_a_class_shrinks_as_the_docstring_says(settings, kept):
    """(c + 1) / (m c + 1) of it, from the second moments of Dirichlet weights; means stay where they are."""
    latents, groups = cells()
    mixed = draw(latents, groups, probability=1.0, **settings)
    for group, own in enumerate((mixed[mixed[:, 0] < 10], mixed[mixed[:, 0] >= 10])):
        before = latents[torch.as_tensor(groups == group)].numpy()
        np.testing.assert_allclose(own.mean(0), before.mean(0), atol=0.05)
        np.testing.assert_allclose(own.var(0) / before.var(0), kept, rtol=0.05)


def test_share_of_mixtures():
    latents, groups = cells()
    mixed = draw(latents, groups, probability=0.3)
    untouched = np.isin(mixed[:, 0], latents[:, 0].numpy())
    assert untouched.mean() == pytest.approx(0.7, abs=0.01)


def test_mixtures_never_leave_their_class():
    latents, groups = cells()
    mixed = draw(latents, groups)[:, 0]
    assert not ((mixed > 10 - 1) & (mixed < 10 + 1)).any()


def test_cells_without_a_label_and_labels_of_one_cell_are_left_alone():
    latents, groups = cells()
    groups = np.where(np.arange(N) < 1000, -1, groups)
    groups[-1] = 7  # the only one of its kind
    batch = Batches(latents, groups, Mixup(probability=1.0)).draw(N, torch.Generator().manual_seed(0))
    torch.testing.assert_close(batch[:1000], latents[:1000], atol=0, rtol=0)
    torch.testing.assert_close(batch[-1], latents[-1])
    assert (batch[1000:-1] != latents[1000:-1]).any(1).all()


def test_codes_may_have_gaps():
    """The training cells may lack some of the labels."""
    latents, groups = cells()
    codes = (groups, 5 * groups + 3)
    draws = [Batches(latents, g, Mixup()).draw(500, torch.Generator().manual_seed(0)) for g in codes]
    torch.testing.assert_close(*draws)


def test_a_batch_larger_than_the_data_is_the_data():
    latents, _ = cells()
    assert Batches(latents).draw(N + 1, torch.Generator()) is not None
    torch.testing.assert_close(Batches(latents).draw(N + 1, torch.Generator()), latents)


def test_the_smallest_concentration_does_not_underflow():
    """Gamma variables of shape 0.01 are often too small for any float; a mixture of none would be the origin."""
    latents, groups = torch.ones(1000, 2), np.zeros(1000, dtype=int)
    mixed = draw(latents, groups, size=200_000, points=2, probability=1.0, concentration=0.01)
    np.testing.assert_allclose(mixed, 1, rtol=1e-5)
