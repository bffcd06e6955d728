"""The training loop: it learns, stops in time, and fails in words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracle import random_mixture

from dice._errors import TrainingError
from dice._model import training_data
from dice._model.networks.depth import DepthDenoiser
from dice._model.training import Trainer, make_trainer
from dice._model.training_data import Batches
from dice.options import Mixup


def latents(n=400, seed=0):
    """Draws from a known mixture, scaled to mean variance 1."""
    draws, _ = random_mixture(seed=seed).sample(n, torch.Generator().manual_seed(seed))
    return (draws - draws.mean(0)) / draws.var(0).mean().sqrt()


def trainer(data=None, *, fraction=0.25, width=32, **overrides):
    values = latents() if data is None else data
    data = training_data.plain_data(
        values.numpy(), training_data.assign_roles(len(values), fraction, 0, 0), torch.device("cpu")
    )
    made = make_trainer("default", data, noise=0.2, **{"max_steps": 60, "batch_size": 128} | overrides)
    denoiser = DepthDenoiser.empty({"n_latent": 4, "width": width, "depth": 2})
    denoiser.initialize(torch.Generator().manual_seed(0))
    denoiser.start(data.train, data.held_out, None)
    return Trainer(denoiser, Batches(data.train), made.held_out, made.config)


def run(trainer):
    for _ in trainer.steps():
        pass
    return trainer


def test_it_learns_what_is_not_gaussian():
    """Held-out loss 1 is the best linear denoiser; the exact posterior of the mixture bounds it from below."""
    one = run(trainer(latents(2000), max_steps=300))
    assert one.best_loss < 0.97 * one.history[0][2]
    mixture = random_mixture()
    draws, _ = mixture.sample(2000, torch.Generator().manual_seed(0))
    center, scale = draws.mean(0), draws.var(0).mean().sqrt()
    s = torch.tensor(0.5)
    clean = one.held_out.rows
    noisy = clean + s * torch.randn(clean.shape, generator=torch.Generator().manual_seed(3))
    exact = (mixture(noisy * scale + center, s * scale) - center) / scale
    variances = one.batches.data.var(0)
    wiener = variances / (variances + s**2) * noisy
    error = (one.denoiser(noisy, s) - exact).square().mean()
    assert error < 0.5 * (wiener - exact).square().mean()


def test_losses_are_reported_at_evaluations_only():
    one = trainer(evaluate_every=20)
    assert list(one.steps()) == list(range(1, 61))
    assert [step for step, _, _ in one.history] == [20, 40, 60]
    assert all(math.isfinite(validation) for _, _, validation in one.history)


def test_a_wide_network_memorises_unless_it_is_stopped():
    """30 cells and far too many weights: the held-out loss turns, and patience keeps the best."""
    settings = {"width": 128, "max_steps": 400, "evaluate_every": 25, "learning_rate": 5e-3}
    stopped = run(trainer(latents(40), patience=4, **settings))
    endless = run(trainer(latents(40), patience=0, **settings))
    assert endless.step == 400
    assert stopped.step < 400
    curve = np.array(endless.history)[:, 2]
    assert curve[-1] > 1.1 * curve.min()
    assert endless.held_out.loss(endless.denoiser) == pytest.approx(curve[-1])
    assert stopped.held_out.loss(stopped.denoiser) == pytest.approx(stopped.best_loss)
    assert stopped.best_loss < 1.02 * curve.min()


def test_without_held_out_cells_the_last_weights_are_kept():
    one = run(trainer(fraction=0.0))
    assert one.held_out is None
    assert one.best_step == 60
    assert math.isnan(one.history[-1][2])
    average = one.average.module.state_dict()
    for name, weight in one.denoiser.state_dict().items():
        torch.testing.assert_close(weight, average[name])


@pytest.mark.parametrize("at", [1, 7, 20, 59, 60])
@pytest.mark.parametrize("fraction", [0.0, 0.25])
def test_a_loss_that_is_not_finite_stops_with_its_step(at, fraction, monkeypatch):
    one = trainer(fraction=fraction, evaluate_every=20)
    real = one.denoiser.loss
    monkeypatch.setattr(one.denoiser, "loss", lambda *a: real(*a) * (math.inf if one.step + 1 == at else 1))
    with pytest.raises(TrainingError, match=rf"loss became (nan|inf) at step {at} \(learning rate") as caught:
        run(one)
    assert "\n" not in str(caught.value)
    assert f"{one.rate(at - 1):.2g}" in str(caught.value)
    assert not one.denoiser.training
    assert all(torch.isfinite(weight).all() for weight in one.denoiser.state_dict().values())


def test_a_gradient_that_is_not_finite_is_noticed_although_the_loss_is(monkeypatch):
    one = trainer(evaluate_every=60)
    real = one.denoiser.loss

    def loss(clean, generator):
        value = real(clean, generator)
        # sqrt has an infinite slope at 0 and the value 0: only the gradient is ruined.
        return value + ((value - value).abs().sqrt() if one.step == 59 else 0)

    monkeypatch.setattr(one.denoiser, "loss", loss)
    with pytest.raises(TrainingError, match="at step 60"):
        run(one)


def test_a_wild_learning_rate_is_one_sentence():
    with pytest.raises(
        TrainingError, match=r"at step \d+ \(learning rate .*smaller learning_rate, for example 2.5e\+05"
    ):
        run(trainer(learning_rate=1e6, max_steps=200))


@pytest.mark.parametrize("mixup", [None, Mixup()])
def test_the_state_continues_to_the_bit(mixup):
    """Also in the middle between two evaluations, and for random numbers that numpy draws."""

    def make():
        one = trainer(evaluate_every=20)
        batches = Batches(one.batches.data, None if mixup is None else np.arange(300) % 3, mixup)
        return Trainer(one.denoiser, batches, one.held_out, one.config)

    whole, first, second = make(), make(), make()
    run(whole)
    steps = first.steps()
    for _ in range(33):
        next(steps)
    second.load_state(first.state())
    run(second)
    assert second.history == whole.history
    for name, weight in whole.denoiser.state_dict().items():
        assert torch.equal(weight, second.denoiser.state_dict()[name])


def test_the_averaged_weights_follow_the_trained_ones():
    one = trainer(ema_decay=0.0)
    next(one.steps())
    for name, weight in one.average.module.state_dict().items():
        torch.testing.assert_close(weight, one.denoiser.state_dict()[name])


def test_learning_rate_rises_and_falls():
    one = trainer()
    one.config = replace(one.config, warmup=10, max_steps=100, learning_rate=1.0)
    rates = [one.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9]
    assert rates[55] == pytest.approx(0.5 * (1 + math.cos(math.pi * 0.55)))
    assert rates[99] < 1e-3


def test_patience_is_counted_in_evaluations():
    one = trainer(evaluate_every=10, patience=3, max_steps=100)
    one.best_step = 20
    for step, finished in ((40, False), (49, False), (50, True), (51, True)):
        one.step = step
        assert one.finished == finished
    one.best_step = 95
    for step, finished in ((99, False), (100, True)):
        one.step = step
        assert one.finished == finished
    one.config = replace(one.config, patience=0)
    one.step, one.best_step = 99, 0
    assert not one.finished


def test_gradients_are_clipped(monkeypatch):
    """However steep the loss, the weights are moved by a gradient of the longest length that is allowed."""
    one = trainer()
    real, lengths = one.denoiser.loss, []
    monkeypatch.setattr(one.denoiser, "loss", lambda *a: 1e4 * real(*a))
    for _ in range(3):
        one._step()
        squares = [weight.grad.square().sum() for weight in one.denoiser.parameters() if weight.grad is not None]
        lengths.append(float(torch.stack(squares).sum().sqrt()))
    assert lengths == pytest.approx([one.config.clip_norm] * 3, rel=1e-3)


def test_the_learning_rate_never_exceeds_what_was_asked_for():
    one = trainer()
    one.config = replace(one.config, warmup=4, max_steps=1000, learning_rate=2.0)
    cosine = [0.5 * (1 + math.cos(math.pi * step / 1000)) for step in range(1000)]
    expected = [2.0 * min((step + 1) / 4, 1) * cosine[step] for step in range(1000)]
    assert [one.rate(step) for step in range(1000)] == pytest.approx(expected)
    one.config = replace(one.config, warmup=0)
    assert one.rate(0) == 2.0
