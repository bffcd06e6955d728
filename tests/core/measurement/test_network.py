"""The measurement before it is trained: a ridge regression in closed form, at depths within reach."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dice._core.measurement.network import RIDGES, MeasurementNetwork

K = 2


def rows(n=400, seed=0):
    """Rows of a linear world: input, rest, its halves, and three log depths."""
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(n, K)) * [3.0, 1.0]
    noisy = [clean + s * rng.normal(size=(n, K)) for s in (1.0, 0.2, 0.3, 0.3)]
    depths = rng.normal([-3.0, -2.0, -2.7], 0.5, size=(n, 3))
    return torch.as_tensor(np.hstack([*noisy, depths]), dtype=torch.float32)


def fitted(train, held_out, typical=-2.5):
    network = MeasurementNetwork.empty({"n_latent": K, "width": 8, "depth": 1})
    network.initialize(torch.Generator().manual_seed(0))
    network.fit_filter(train, held_out, typical)
    return network


def features(data):
    """Latents, latents times each depth, depths and their squares, in units of the rows, and a constant."""
    scale = data[:, K : 2 * K].var(0).mean().sqrt()
    y, depths = data[:, :K] / scale, data[:, 4 * K : 4 * K + 2]
    d = ((depths - depths.mean(0)) / depths.std(0)).clamp(-3, 3)
    ones = torch.ones(len(data), 1)
    return torch.cat([y, y * d[:, :1], y * d[:, 1:], d, d.square(), ones], dim=1).double(), scale


@torch.no_grad()
def test_the_filter_is_ridge_regression():
    """Without held-out cells with the middle ridge; with them, by the one that is wrong least on them."""
    train = rows()
    x, scale = features(train)
    target = train[:, K : 2 * K].double() / scale
    for held_out in (train[:0], rows(seed=1)):
        network = fitted(train, held_out)
        exact = [torch.linalg.solve(x.T @ x + ridge * torch.eye(x.shape[1]).double(), x.T @ target) for ridge in RIDGES]
        found = torch.cat([network.filter.weight.T, network.filter.bias[None]]).double()
        if len(held_out):
            assert min(float((found - weights).abs().max()) for weights in exact) < 1e-4
            assert float(network.error(held_out)) < 0.2
        else:
            torch.testing.assert_close(found, exact[2], atol=1e-4, rtol=1e-4)
        y, depths = train[:, :K], train[:, 4 * K]
        mean, variance = network(y, depths)
        assert mean.shape == variance.shape == (len(train), K)
        torch.testing.assert_close(
            network.error(train), (x @ found - target).square().mean().float(), rtol=1e-4, atol=1e-5
        )


def test_the_variance_begins_at_the_mean_product_of_errors():
    train = rows()
    network = fitted(train, rows(seed=1))
    y, first, second = train[:, :K], train[:, 2 * K : 3 * K], train[:, 3 * K : 4 * K]
    with torch.no_grad():
        mean, hidden = network._mean(y, train[:, [4 * K, 4 * K + 2]])
        expected = ((first - mean) * (second - mean)).mean(0)
        torch.testing.assert_close(network._variance(hidden)[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("depth", "asked"), [(-2.5, -2.5), (0.0, -np.log(2)), (-9.0, -9.0 + np.log(20))])
def test_cells_are_asked_for_depths_within_reach(depth, asked):
    """From half of their own to twenty times it."""
    network = fitted(rows(), rows(seed=1))
    y = torch.ones(1, K)
    with torch.no_grad():
        exact = network._mean(y, torch.tensor([[depth, asked]], dtype=torch.float32))[0]
        torch.testing.assert_close(network(y, torch.tensor([depth], dtype=torch.float32))[0], exact)


def test_soundness():
    network = fitted(rows(), rows(seed=1))
    assert network.is_sound()
    for name in ("scale", "depth_sd", "base_variance"):
        spoiled = fitted(rows(), rows(seed=1))
        with torch.no_grad():
            getattr(spoiled, name).view(-1)[0] = 0.0
        assert not spoiled.is_sound()
    with torch.no_grad():
        network.filter.bias.fill_(1e7)
    assert not network.is_sound()


def test_sizes_that_files_may_ask_for():
    assert dict(MeasurementNetwork.bounds) == {"width": 1024, "depth": 16}
