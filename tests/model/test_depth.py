"""The default network before it is trained: a ridge regression in closed form, at depths and noise levels in reach."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dice._model.linear_filter import MIDDLE, RIDGES, LinearFilter
from dice._model.networks import depth
from dice._model.networks.depth import DepthDenoiser
from dice._model.sampler import CellNoise
from dice._model.training_data import Rows

K = 2
ZERO = torch.tensor(0.0)


def rows(n=400, seed=0):
    """Rows of a linear world: input, rest, its halves, and three log depths."""
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(n, K)) * [3.0, 1.0]
    noisy = [clean + s * rng.normal(size=(n, K)) for s in (1.0, 0.2, 0.3, 0.3)]
    depths = rng.normal([-3.0, -2.0, -2.7], 0.5, size=(n, 3))
    return torch.as_tensor(np.hstack([*noisy, depths]), dtype=torch.float32)


def started(train, held_out=None, typical=-2.5, **size):
    network = DepthDenoiser.empty({"n_latent": K, "width": 8, "depth": 1} | size)
    network.initialize(torch.Generator().manual_seed(0))
    network.start(train, held_out, typical)
    return network.requires_grad_(False)


def features(data):
    """Latents, latents times each depth, depths and their squares, in units of the rows, and a constant."""
    y, depths = data[:, :K], data[:, 4 * K : 4 * K + 2]
    d = ((depths - depths.mean(0)) / depths.std(0)).clamp(-3, 3)
    return torch.cat([y, y * d[:, :1], y * d[:, 1:], d, d.square(), torch.ones(len(data), 1)], dim=1).double()


def test_the_filter_is_ridge_regression():
    """Without held-out cells with the middle ridge; with them, by the one that is wrong least on them."""
    train = rows()
    x, target = features(train), train[:, K : 2 * K].double()
    exact = [torch.linalg.solve(x.T @ x + ridge * torch.eye(x.shape[1]).double(), x.T @ target) for ridge in RIDGES]
    for held_out in (None, rows(seed=1)):
        network = started(train, held_out)
        linear = network.filter.linear
        found = torch.cat([linear.weight.T, linear.bias[None]]).double()
        if held_out is None:
            torch.testing.assert_close(found, exact[2], atol=1e-4, rtol=1e-4)
        else:
            assert min(float((found - weights).abs().max()) for weights in exact) < 1e-4
        error = network.error(train, ZERO, torch.zeros(len(train), K))
        torch.testing.assert_close(error, (x @ found - target).square().mean().float(), rtol=1e-4, atol=1e-5)


def test_noise_on_top_shrinks_the_filter_as_wiener_would():
    """Latents are uncorrelated: a filter of latents of variance v becomes v / (v + s^2) times what it was."""
    network = started(rows(4000))
    z, log_depth = torch.ones(1, K), torch.tensor([-3.0])
    origin = network(torch.zeros(1, K), ZERO, log_depth)
    without, with_noise = (network(z, torch.tensor(s), log_depth) - origin for s in (0.0, 2.0))
    variances = torch.tensor([10.0, 2.0])
    torch.testing.assert_close(with_noise / without, (variances / (variances + 4))[None], rtol=0.05, atol=0)


def test_the_variance_begins_at_the_mean_product_of_errors():
    train = rows()
    network, parts = started(train), Rows(train, K)
    standard = network.filter.standardised(parts.depths, len(train))
    middle = standard[:, 0].abs() < MIDDLE
    mean = network._mean(parts.noisy, parts.half_depths, torch.zeros(1, 1))[0]
    expected = ((parts.first - mean) * (parts.second - mean))[middle].mean(0)
    found = network.filter.variance(torch.zeros(1, 1), torch.zeros(1, 2))[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    # It grows with noise, up to that of the prior, and falls with depth.
    far = network.filter.variance(torch.full((1, 1), 1e3), torch.zeros(1, 2))[0]
    torch.testing.assert_close(far, network.filter.prior_variance, rtol=1e-3, atol=0)
    deep, shallow = (network.filter.variance(torch.zeros(1, 1), torch.full((1, 2), d)) for d in (1.0, -1.0))
    assert (deep < shallow).all()


@pytest.mark.parametrize(("own", "asked"), [(-2.5, -2.5), (0.0, -np.log(2)), (-9.0, -9.0 + np.log(20))])
def test_cells_are_asked_for_depths_within_reach(own, asked):
    """From half of their own to twenty times it."""
    network, z = started(rows(), rows(seed=1)), torch.ones(1, K)
    exact = network._mean(z, torch.tensor([[own, asked]], dtype=torch.float32), torch.zeros(1, 1))[0]
    torch.testing.assert_close(network(z, ZERO, torch.tensor([own], dtype=torch.float32)), exact)


def test_without_depths_cells_are_the_deepest():
    network, z = started(rows()), torch.ones(3, K)
    deepest = network.filter.deepest.expand(3)
    torch.testing.assert_close(network(z, torch.tensor(0.5)), network(z, torch.tensor(0.5), deepest))
    assert float(network.filter.deepest) == pytest.approx(float(rows()[:, 4 * K].quantile(0.98)), abs=1e-4)


def test_without_counts_it_begins_as_the_filter_of_unit_variance():
    latents = torch.randn(50, K, generator=torch.Generator().manual_seed(0))
    network = started(latents, typical=None)
    assert not network.counted
    assert np.isnan(network.typical)
    torch.testing.assert_close(network(latents, torch.tensor(2.0)), latents / 5)
    torch.testing.assert_close(network(latents, ZERO), latents)
    network.initialize(torch.Generator().manual_seed(1))
    network.outlet.weight.fill_(0.3)
    network.start(latents, None, None)
    # Whatever it has learned, nothing is left to remove without noise.
    torch.testing.assert_close(network(latents, ZERO), latents)


def test_levels_of_training():
    """Log-normal, evenly spread over a batch; with counts for a third of the rows, none for the others."""
    generator, cpu = torch.Generator().manual_seed(0), torch.device("cpu")
    plain = started(torch.randn(9, K), typical=None)._levels(3000, generator, cpu)
    logs = plain.log()
    assert float(logs.mean()) == pytest.approx(-0.8, abs=0.01)
    assert float(logs.std()) == pytest.approx(1.4, abs=0.02)
    counted = started(rows())._levels(3000, generator, cpu)
    assert int((counted == 0).sum()) == 2000
    assert counted[:1500].count_nonzero() > 300  # In random order.


def test_rows_are_weighted_by_the_error_that_the_filter_leaves():
    """A network that starts there has the same loss at every level."""
    train = rows(20_000)
    depths = train[:, 4 * K : 4 * K + 2].mean(0)
    network = started(train, typical=float(torch.logaddexp(*depths)))
    levels = torch.tensor([0.0, 0.3, 1.0, 3.0])
    noise = torch.randn(len(train), K, generator=torch.Generator().manual_seed(0))
    errors = torch.stack([network.error(train, level, noise) for level in levels])
    weighted = errors * network.filter.weight(levels[:, None], depths.expand(4, -1))
    torch.testing.assert_close(weighted / weighted[0], torch.ones(4), atol=0.1, rtol=0)


def test_rows_are_weighted_by_the_shares_of_counts_and_not_by_the_depth_of_cells():
    """A deeper cell with the same shares has the same weight; another share has another one."""
    network, levels = started(rows()), torch.zeros(3, 1)
    depths = network.filter.typical + torch.tensor([[0.2, 0.8], [0.8, 0.2], [2.0, 8.0]]).log()
    usual, other, deep = network.filter.weight(levels, depths).tolist()
    assert usual != pytest.approx(other, rel=0.1)
    assert deep == pytest.approx(usual)


def test_draws_have_the_learned_moments():
    network, z = started(rows()), torch.ones(1, K)
    log_depth, level = torch.tensor([-3.0]), torch.tensor(0.4)
    mean, variance = network.moments(z, level, log_depth)
    seeds = torch.arange(4000)
    drawn = network.posterior_sample(z.expand(4000, -1), level, CellNoise(seeds), log_depth.expand(4000))
    torch.testing.assert_close(drawn.mean(0), mean[0], atol=0.05, rtol=0.02)
    torch.testing.assert_close(drawn.var(0), variance[0], atol=0, rtol=0.1)
    noise = CellNoise(seeds[:1])
    torch.testing.assert_close(network.variance(z, level, noise, log_depth), variance.mean(1))


def test_blocks_scale_and_shift():
    block = DepthDenoiser(3, width=8, depth=1).blocks[0]
    with torch.no_grad():
        hidden, conditions = torch.randn(5, 8), torch.randn(5, depth.N_CONDITIONS)
        scale, shift = block.film(conditions)[:, :8], block.film(conditions)[:, 8:]
        normal = (hidden - hidden.mean(1, keepdim=True)) / (hidden.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        expected = hidden + block.contract(torch.nn.functional.silu(block.expand(normal * (1 + scale) + shift)))
        torch.testing.assert_close(block(hidden, conditions), expected, atol=1e-5, rtol=1e-4)


def test_soundness():
    assert started(rows(), rows(seed=1)).is_sound()
    for name, value in (("depth_sd", 0.0), ("prior_variance", 0.0), ("posterior_variance", -1.0), ("target_noise", -1)):
        spoiled = started(rows())
        getattr(spoiled.filter, name).view(-1)[0] = value
        assert not spoiled.is_sound()
    network = started(rows())
    network.filter.linear.bias.fill_(1e7)
    assert not network.is_sound()


def test_settings_that_results_depend_on():
    """Measured, with the evidence beside them: a change is one of numerics, and belongs into the changelog."""
    (preset,) = DepthDenoiser.presets.values()
    config = preset.training
    assert dict(preset.size) == {"width": 128, "depth": 2}
    assert (config.max_steps, config.batch_size, config.warmup, config.evaluate_every) == (400, 512, 30, 50)
    assert (config.learning_rate, config.weight_decay, config.ema_decay, config.patience) == (4e-3, 1e-2, 0.99, 4)
    assert dict(DepthDenoiser.bounds) == {"width": 1024, "depth": 16}


def test_depths_may_all_be_far_from_their_mean():
    """Cells of one or a few counts have two or three depths; the variance was NaN, and so was the loss of training."""
    values = torch.randn(400, 11, generator=torch.Generator().manual_seed(0))
    values[:, 8:] = torch.tensor([[-1.0], [1.0]]).repeat(200, 3)
    found = LinearFilter(2)
    found.fit(Rows(values, 2), None, 0.0)
    assert found.is_sound()
    assert all(torch.isfinite(x).all() for x in found.state_dict().values())
