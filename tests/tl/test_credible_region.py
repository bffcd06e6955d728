"""Confidence sets: coverage, and the paper's figures in numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import random_mixture

import dice
from dice._model.arrays import CredibleRegion


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_regions_cover_the_truth_at_their_level(level):
    """Exact posterior samples of a mixture: coverage within binomial error."""
    mixture, generator = random_mixture(n_latent=3), torch.Generator().manual_seed(0)
    n, s = 600, torch.tensor(0.6).double()
    truth, _ = mixture.sample(n, generator)
    y = truth + s * torch.randn(truth.shape, generator=generator).double()
    samples = torch.stack([mixture.sample_posterior(y, s, generator) for _ in range(79)], 1).numpy()
    covered = [
        CredibleRegion.from_samples(cell, level).contains(u)[0] for cell, u in zip(samples, truth.numpy(), strict=True)
    ]
    assert abs(np.mean(covered) - level) < 4 * np.sqrt(level * (1 - level) / n) + 1 / 40


def centres(reference):
    """Cluster 2's centre and the midpoint of both, as expression profiles."""
    means = dict(zip(["Cluster 2", "Cluster 1"], [np.zeros(15), np.ones(15)], strict=True))
    points = np.stack([means["Cluster 2"], (means["Cluster 1"] + means["Cluster 2"]) / 2])
    return points @ reference.varm["V_true"].T


def test_the_papers_two_cases(reference, query):
    """At the centre of a cluster all samples stay in it; at the midpoint they are split."""
    pair = query[:2].copy()
    pair.X = centres(reference).astype(np.float32)
    dice.tl.denoise(pair, reference, rho=20, n_samples=500, likelihood=dice.Gaussian(1.0))
    cluster = reference.obs["cell_type"].to_numpy()
    latents = reference.obsm["X_dice_pca"]
    anchors = np.stack([latents[cluster == name].mean(0) for name in ("Cluster 1", "Cluster 2")])
    distance = ((pair.obsm["X_dice_samples"][:, :, None] - anchors) ** 2).sum(-1)
    share = (distance[..., 1] < distance[..., 0]).mean(1)
    assert share[0] > 0.99
    assert 0.25 < share[1] < 0.75


def test_spread_grows_with_rho(reference, query):
    pair = query[:2].copy()
    pair.X = centres(reference).astype(np.float32)
    spread = []
    for rho in (0.1, 0.5, 1, 5, 10, 20):
        dice.tl.denoise(pair, reference, rho=rho, n_samples=100, likelihood=dice.Gaussian(0.05))
        spread.append(pair.obsm["X_dice_samples"][0].std(0).mean())
    assert (np.diff(spread) > 0).all(), spread
    assert spread[-1] > 20 * spread[0]


def test_errors(query, reference):
    with pytest.raises(dice.DiceError, match="n_samples=500"):
        dice.tl.credible_region(query, 0)
    dice.tl.denoise(query, reference, n_samples=4)
    with pytest.raises(dice.DiceError, match="draw at least 18"):
        dice.tl.credible_region(query, 0)
    with pytest.raises(dice.DiceError, match="`level` must be a number between 0 and 1, got 2"):
        dice.tl.credible_region(query, 0, level=2)
