"""Presets: one interface, and a mixture whose size is chosen on cells it has not seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import ExactMixture
from sklearn.mixture import GaussianMixture

import dice
from dice._model import networks, training_data
from dice._model.networks import Denoiser
from dice._model.training import make_trainer

CPU = torch.device("cpu")


def clusters(n=900, n_clusters=4, k=3, seed=0):
    rng = np.random.default_rng(seed)
    values = 3 * rng.normal(size=(n_clusters, k))[rng.integers(n_clusters, size=n)] + 0.4 * rng.normal(size=(n, k))
    values -= values.mean(0)
    return values / np.sqrt(values.var(0).mean())


def split(values, fraction, seed=0):
    return training_data.plain_data(values, training_data.assign_roles(len(values), fraction, 0, seed), CPU)


def fit_mixture(data):
    return ExactMixture.fit(data.train, data.held_out, 0)


def test_roles_have_the_shares_asked_for_and_calibration_cells_are_left_out():
    values = clusters()
    roles = training_data.assign_roles(900, 0.2, 0.1, 0)
    np.testing.assert_array_equal(np.bincount(roles), [630, 180, 90])
    data = training_data.plain_data(values, roles, CPU)
    assert (len(data.train), len(data.held_out)) == (630, 180)
    seen = np.concatenate([data.train, data.held_out]) * np.float32(data.scale)
    assert np.abs(values[roles == 2, :1] - seen[:, 0]).min() > 1e-7


def test_split_is_a_partition_that_the_seed_decides():
    values = clusters()
    one, same, other = (split(values, 0.1, seed) for seed in (0, 0, 1))
    assert (len(one.train), len(one.held_out)) == (810, 90)
    assert one.scale == pytest.approx(np.sqrt(values.var(0).mean()))
    np.testing.assert_allclose(one.train, values[one.cells] / one.scale, rtol=1e-6)
    both = np.concatenate([one.train, one.held_out])
    np.testing.assert_allclose(np.sort(both, 0), np.sort(values / one.scale, 0), rtol=1e-6)
    assert torch.equal(one.train, same.train)
    assert not torch.equal(one.train, other.train)
    assert split(values, 0).held_out is None


def test_mixture_size_is_the_one_with_the_best_held_out_likelihood():
    denoiser, history = fit_mixture(split(clusters(), 0.2))
    best = int(np.argmax(history["log_likelihood"]))
    assert denoiser.n_components == history["n_components"][best] == 4
    assert history["n_components"] == [1, 2, 4, 8]
    assert not denoiser.training


def test_mixture_is_scikit_learns_to_the_digit():
    """Density and D(z; s) by Tweedie's formula from scikit-learn's own log density."""
    data = split(clusters(), 0.2)
    denoiser, history = fit_mixture(data)
    expected = GaussianMixture(denoiser.n_components, reg_covar=1e-3, random_state=0, max_iter=200)
    expected.fit(data.train.double().numpy())
    z = data.held_out[:20].double()
    exact = denoiser.double()
    log_prob = exact.log_prob(z, torch.tensor(0.0)).numpy()
    np.testing.assert_allclose(log_prob, expected.score_samples(z.numpy()), rtol=1e-4)
    assert max(history["log_likelihood"]) == pytest.approx(expected.score(data.held_out.double().numpy()), rel=1e-6)
    s, step = 0.4, 1e-4
    blurred = GaussianMixture(denoiser.n_components)
    blurred.weights_, blurred.means_ = expected.weights_, expected.means_
    blurred.covariances_ = expected.covariances_ + s**2 * np.eye(3)
    blurred.precisions_cholesky_ = np.stack([np.linalg.inv(np.linalg.cholesky(c)).T for c in blurred.covariances_])
    score = np.stack(
        [
            (blurred.score_samples(z.numpy() + step * axis) - blurred.score_samples(z.numpy() - step * axis))
            / (2 * step)
            for axis in np.eye(3)
        ],
        axis=1,
    )
    np.testing.assert_allclose(exact(z, torch.tensor(s)), z.numpy() + s**2 * score, atol=1e-4)


@pytest.fixture(scope="module", params=["default", "gmm"])
def learned(request) -> tuple[Denoiser, training_data.TrainingData]:
    data = split(clusters(), 0.2)
    if request.param == "gmm":
        return fit_mixture(data)[0], data
    trainer = make_trainer("default", data, noise=0.1, max_steps=200, batch_size=256)
    for _ in trainer.steps():
        pass
    return trainer.denoiser, data


def test_limits_of_the_noise(learned):
    """The paper's own network has the same test in test_paper."""
    denoiser, data = learned
    z = data.held_out
    with torch.no_grad():
        torch.testing.assert_close(denoiser(z, torch.tensor(1e-4)), z, atol=1e-3, rtol=0)
        far = denoiser(z, torch.tensor(1e4))
    torch.testing.assert_close(far, data.train.mean(0).expand_as(far), atol=0.2, rtol=0)


def test_every_cell_may_have_its_own_noise(learned):
    denoiser, data = learned
    z, s = data.held_out[:6], torch.linspace(0.1, 2, 6)
    with torch.no_grad():
        each = torch.cat([denoiser(cell[None], level) for cell, level in zip(z, s, strict=True)])
        torch.testing.assert_close(denoiser(z, s), each, atol=1e-5, rtol=1e-5)


def test_overrides_and_defaults():
    data = split(clusters(), 0.1)
    trainer = make_trainer("default", data, noise=0.1, max_steps=None, batch_size=99)
    assert trainer.config.batch_size == 99
    assert trainer.config.max_steps == networks.by_preset()["default"][1].training.max_steps


@pytest.mark.parametrize(("n_cells", "fraction"), [(2, 0.5), (3, 0.5), (9, 0.1)])
def test_few_cells_are_enough_for_every_preset(n_cells, fraction):
    data = split(clusters(n_cells, k=1), fraction)
    assert len(data.train) >= 2
    mixture, _ = fit_mixture(data)
    assert mixture.n_components == 1
    for name in ("default", "paper", "paper-small"):
        trainer = make_trainer(name, data, noise=0.1, max_steps=1)
        assert list(trainer.steps()) == [1]
        assert np.isfinite(trainer.history[-1][1])


def test_equal_training_cells_have_a_finite_loss():
    data = training_data.TrainingData(torch.zeros(2, 1), torch.ones(1, 1), 1.0, 1, np.arange(2))
    trainer = make_trainer("default", data, noise=0.1, max_steps=1)
    assert np.isfinite(trainer.held_out.loss(trainer.denoiser.eval()))


def test_batches_of_one_cell_cannot_be_normalised():
    data = split(clusters(20), 0.1)
    with pytest.raises(dice.DiceError, match=r"preset='paper' normalises .* pass batch_size=2 or more"):
        make_trainer("paper", data, noise=0.1, batch_size=1)


@pytest.mark.parametrize(
    ("n_cells", "shares", "counts"),
    [
        (100, (0.2, 0.1), (70, 20, 10)),
        (10, (0.9, 0.9), (2, 8, 0)),
        (10, (0.5, 0.9), (2, 5, 3)),
        (1, (0.9, 0.9), (1, 0, 0)),
    ],
)
def test_two_cells_at_least_are_learned_from(n_cells, shares, counts):
    assert tuple(np.bincount(training_data.assign_roles(n_cells, *shares, 0), minlength=3)) == counts
