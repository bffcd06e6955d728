"""The paper's network and schedule, number by number (its appendix and method notes, section 4)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from dice._model import training_data
from dice._model.networks.paper import ALPHA_BAR, BETA, N_STEPS, NOISE_LEVELS, PaperDenoiser, _sinusoidal, first_step
from dice._model.training import Trainer, make_trainer


def make(n_latent=5, width=16, depth=2, seed=0):
    denoiser = PaperDenoiser.empty({"n_latent": n_latent, "width": width, "depth": depth})
    denoiser.initialize(torch.Generator().manual_seed(seed))
    return denoiser.eval()


@pytest.mark.parametrize(("preset", "k", "expected"), [("paper", 25, 34.5e6), ("paper-small", 15, 150e3)])
def test_number_of_parameters(preset, k, expected):
    with torch.device("meta"):
        denoiser = PaperDenoiser(n_latent=k, **PaperDenoiser.presets[preset].size)
    count = sum(parameter.numel() for parameter in denoiser.parameters())
    assert count == pytest.approx(expected, rel=0.01)


def test_layers_are_those_of_the_table():
    width, k = 64, 15
    with torch.device("meta"):
        denoiser = PaperDenoiser(n_latent=k, width=width, depth=2)
    shapes = [
        (type(m).__name__, *((m.in_features, m.out_features) if isinstance(m, nn.Linear) else (m.num_features,)))
        for m in denoiser.modules()
        if isinstance(m, nn.Linear | nn.BatchNorm1d)
    ]
    block = [
        ("Linear", 2 * width, 4 * width),
        ("BatchNorm1d", 4 * width),
        ("Linear", 4 * width, 2 * width),
        ("BatchNorm1d", 2 * width),
    ]
    time = [("Linear", 16, width), ("Linear", width, width)]
    head = [("Linear", 2 * width, width), ("Linear", width, k)]
    assert shapes == [("Linear", k, width), *time, *block, *block, *head]
    assert sum(isinstance(m, nn.SiLU) for m in denoiser.modules()) == 2 + 2 + 1


def test_schedule():
    assert len(BETA) == len(ALPHA_BAR) == 513
    assert BETA[1] == 1e-4
    assert BETA[512] == 2e-2
    np.testing.assert_allclose(np.diff(BETA[1:]), (2e-2 - 1e-4) / 511)
    assert ALPHA_BAR[0] == 1
    assert NOISE_LEVELS[-1] == pytest.approx(13.29, abs=0.005)


def test_start_of_the_prior_step():
    table = {20: 512, 10: 483, 5: 406, 3: 341, 2: 285, 1: 186, 0.5: 105, 0.1: 21}
    assert {rho: first_step(rho) for rho in table} == table
    assert sum(first_step(rho) for rho in np.linspace(5, 0.5, 100)) == 30_699
    assert first_step(0) == 1


def test_training_as_printed():
    preset = PaperDenoiser.presets["paper"].training
    assert (preset.learning_rate, preset.batch_size) == (1e-4, 4048)
    # Neither averaging, clipping nor early stop.
    assert (preset.ema_decay, preset.patience, preset.clip_norm) == (0, 0, math.inf)
    values = np.random.default_rng(0).normal(size=(5000, 3))
    data = training_data.plain_data(values, training_data.assign_roles(5000, 0.1, 0, 0), torch.device("cpu"))
    trainer = make_trainer("paper-small", data, noise=0.1)
    assert trainer.config.max_steps == 2_000 * 2  # two batches of 4048 cover 4,500 cells
    assert isinstance(trainer.optimizer, torch.optim.AdamW)
    assert trainer.rate(0) == pytest.approx(1e-4)
    assert trainer.rate(2_000) == pytest.approx(0.5e-4)


def test_loss_is_that_of_the_predicted_noise():
    """A network that knows the noise has no loss, and t covers the whole table."""
    denoiser, clean = make(), torch.zeros(4000, 5)
    seen = []

    def oracle(x, t):
        seen.append(t)
        return x / torch.as_tensor(np.sqrt(1 - ALPHA_BAR), dtype=torch.float32)[t][:, None]

    denoiser.predict_noise = oracle
    assert denoiser.loss(clean, torch.Generator().manual_seed(0)) < 1e-9
    assert (seen[0].min(), seen[0].max()) == (1, N_STEPS)


def test_denoiser_is_the_network_at_every_step_of_the_table():
    """D(z; s) = z - s eps(sqrt(abar_t) z, t) where s is the noise of step t."""
    denoiser = make()
    z = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    for t in (1, 2, 100, 511, 512):
        s = torch.tensor(NOISE_LEVELS[t], dtype=torch.float32)
        noise = denoiser.predict_noise(z * ALPHA_BAR[t] ** 0.5, torch.tensor([t]))
        torch.testing.assert_close(denoiser(z, s), z - s * noise, atol=1e-4, rtol=1e-4)


def test_levels_beyond_the_table_are_clipped_to_it():
    steps = make().steps(torch.tensor([1e-5, 0.01, 1.0, 13.29, 100.0]))
    assert steps[0] == 1
    assert steps[-1] == 512
    assert 186 <= steps[2] < 187.5
    assert (steps.diff() >= 0).all()


@pytest.fixture(scope="module")
def trained():
    """paper-small's network and loss on three clusters, with a larger learning rate for fewer steps."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 4))[rng.integers(3, size=900)] * 1.5 + 0.3 * rng.normal(size=(900, 4))
    values = (values - values.mean(0)) / np.sqrt(values.var(0).mean())
    data = training_data.plain_data(values, training_data.assign_roles(len(values), 0.2, 0, 0), torch.device("cpu"))
    trainer = make_trainer("paper-small", data, noise=0.2, max_steps=200, learning_rate=2e-3, batch_size=360)
    start = trainer.held_out.loss(trainer.denoiser.eval())
    for _ in trainer.steps():
        pass
    return trainer, start


def test_it_learns(trained: tuple[Trainer, float]):
    trainer, start = trained
    assert trainer.step == 200
    assert trainer.best_step == 200  # the last weights, as in the paper
    assert trainer.best_loss < 0.5 * start
    assert trainer.best_loss < 0.95  # better than the best linear denoiser


def test_batch_statistics_never_enter_a_denoised_cell(trained):
    """After training every normalisation is in inference mode: a cell does not see its neighbours."""
    denoiser = trained[0].denoiser
    assert not any(module.training for module in denoiser.modules())
    means = [m.running_mean.abs().max() for m in denoiser.modules() if isinstance(m, nn.BatchNorm1d)]
    assert min(means) > 0
    judge = trained[0].held_out
    s = judge.levels[3]
    z = judge.rows + s * judge.noise[3]
    together = denoiser(z, s)
    alone = torch.cat([denoiser(cell[None], s) for cell in z[:5]])
    torch.testing.assert_close(together[:5], alone, atol=1e-5, rtol=1e-5)
    with pytest.raises(RuntimeError, match="inference mode"):
        denoiser.train()(z, s)
    denoiser.eval()


def test_limits_of_the_noise(trained):
    """s -> 0 gives the data; s as large as the table knows gives about the mean of the prior."""
    denoiser = trained[0].denoiser
    clean = trained[0].held_out.rows
    torch.testing.assert_close(denoiser(clean, torch.tensor(1e-4)), clean, atol=2e-3, rtol=0)
    s = torch.tensor(13.0)
    noisy = clean + s * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    assert denoiser(noisy, s).square().mean() < 0.25 * noisy.square().mean()


def test_time_is_seen_by_sines_and_cosines():
    """Eight frequencies from 1 down to 1 / 10,000, evenly in their logarithms."""
    angles = torch.tensor([[0.3], [2.0]]) * torch.logspace(0, -4, 8)
    torch.testing.assert_close(_sinusoidal(torch.tensor([0.3, 2.0])), torch.cat([angles.sin(), angles.cos()], dim=1))
