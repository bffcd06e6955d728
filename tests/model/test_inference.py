"""From expression to the posterior under a Gaussian prior, where everything has a closed form."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracle import ExactMixture

import dice
from dice._model.inference import Inference, Plan
from dice._model.likelihood import GaussianLikelihood
from dice._model.offsets import Offsets
from dice._model.projection import Projection
from dice._model.sampler import cell_seeds
from dice._model.steps import GaussianStep, StudentCellStep, StudentGeneStep, likelihood_step
from dice.options import Gaussian, Gibbs, StudentT

D, K, SCALE, NOISE = 30, 3, 2.0, 0.8
RNG = np.random.default_rng(0)
LOADINGS = np.linalg.qr(RNG.normal(size=(D, K)))[0].astype(np.float32)
PROJECTION = Projection(
    mean=np.zeros(D, dtype=np.float32),
    scale=np.ones(D, dtype=np.float32),
    center=np.zeros(D, dtype=np.float32),
    cap=np.inf,
    loadings=LOADINGS,
    singular_values=np.array([9.0, 8, 7, 1], dtype=np.float32),
    gene_noise=np.ones(D, dtype=np.float32),
    noise=0.5,
)
VARIANCES = torch.tensor([2.0, 1.0, 0.5])
CELLS = (RNG.normal(size=(40, K)) * 2 @ LOADINGS.T + NOISE * RNG.normal(size=(40, D))).astype(np.float32)
Y = CELLS @ LOADINGS


class Prior(SimpleNamespace):
    """A Gaussian prior with these variances in scaled units."""

    def __init__(self):
        network = ExactMixture.from_moments(torch.ones(1), torch.zeros(1, K), torch.diag(VARIANCES)[None])
        super().__init__(
            network=network, latent_scale=SCALE, n_latent=K, projection=PROJECTION, measurement=None, noise=0.5
        )

    def denoiser_on(self, device):
        return self.network


def inference(rho=0.0, *, method="direct", genes=None, cells=40, told=None, **options):
    plan = Plan(
        method,
        options.pop("kind", Gaussian()),
        np.atleast_1d(np.asarray(rho, dtype=float)),
        options.pop("gibbs", Gibbs(burn_in=0)),
        n_samples=options.pop("n_samples", 0),
        uncertainty=options.pop("uncertainty", True),
        noise=NOISE,
        level=NOISE,
        offsets=options.pop("offsets", None),
    )
    likelihood = GaussianLikelihood(PROJECTION, np.arange(D) if genes is None else genes)
    seeds = cell_seeds(map(str, range(cells)), 0)
    tell = {} if told is None else {"tell": told.append}
    return Inference(Prior(), likelihood, plan, seeds, "cpu", **options, **tell)


def exact(y=Y, noise=NOISE, rho=0.0):
    """Mean and variance of the posterior in PCA units."""
    variances, total = SCALE**2 * VARIANCES.numpy(), noise**2 + rho**2
    return y * variances / (variances + total), (variances * total / (variances + total)).mean()


@pytest.mark.parametrize("rho", [0.0, 1.3])
def test_the_direct_posterior_in_pca_units(rho):
    told = []
    run = inference(rho, told=told, n_samples=300, cells=40)
    found = run(run.likelihood.latents(CELLS), slice(0, 40))
    mean, variance = exact(rho=rho)
    np.testing.assert_allclose(found.mean, mean, atol=1e-4)
    np.testing.assert_allclose(found.variance.mean(), variance, rtol=0.12)  # Ten steps.
    np.testing.assert_allclose(found.samples.mean(1), mean, atol=0.4)
    assert told == [40]
    probed = inference(rho)
    np.testing.assert_allclose(probed(probed.likelihood.latents(CELLS), slice(0, 40)).variance, variance, rtol=1e-3)
    silent = inference(rho, uncertainty=False)
    assert silent(silent.likelihood.latents(CELLS), slice(0, 40)).variance is None


def test_cells_are_addressed_by_their_position():
    """The seeds of a part are those of its rows, so that chunks do not matter."""
    run = inference(0.5, n_samples=2)
    whole = run(run.likelihood.latents(CELLS), slice(0, 40))
    part = run(run.likelihood.latents(CELLS[10:25]), slice(10, 25))
    np.testing.assert_allclose(part.mean, whole.mean[10:25], atol=1e-5)
    np.testing.assert_allclose(part.samples, whole.samples[10:25], atol=1e-4)
    np.testing.assert_allclose(part.variance, whole.variance[10:25], atol=1e-4)
    np.testing.assert_allclose(whole.mean, exact(rho=0.5)[0], atol=1e-4)


def test_many_cells_go_through_the_network_in_parts(monkeypatch):
    told = []
    whole, run = inference(0.5, n_samples=2), inference(0.5, n_samples=2, told=told)
    expected = whole(whole.likelihood.latents(CELLS), slice(0, 40))
    monkeypatch.setattr("dice._model.inference.NETWORK_CHUNK", 12)
    found = run(run.likelihood.latents(CELLS), slice(0, 40))
    assert told == [12, 12, 12, 4]
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-5)
    np.testing.assert_allclose(found.samples, expected.samples, atol=1e-4)


@pytest.mark.parametrize("method", ["direct", "split"])
def test_offsets_are_taken_away_first(method):
    away = np.array([[[3.0, -2.0, 1.0]]], dtype=np.float32)
    gibbs = Gibbs(burn_in=0)
    run = inference(0.5, method=method, gibbs=gibbs, offsets=Offsets(away, np.zeros(40, dtype=np.intp)))
    found = run(run.likelihood.latents(CELLS), slice(0, 40))
    np.testing.assert_allclose(found.mean, exact(Y - away[0], rho=0.5)[0], atol=1e-4)


def test_empty_cells_have_the_prior():
    cells = CELLS.copy()
    cells[[3, 8]] = 0
    run = inference(0.5, n_samples=300)
    found = run(run.likelihood.latents(cells), slice(0, 40))
    np.testing.assert_array_equal(found.mean[[3, 8]], 0)
    np.testing.assert_array_equal(found.variance[[3, 8]], SCALE**2)
    # From the largest noise ten steps make the samples wider than the prior, by up to half of its variance.
    np.testing.assert_allclose(found.samples[3].var(0), SCALE**2 * VARIANCES, rtol=0.7)
    assert np.abs(found.samples[3].mean(0)).max() < 0.7
    np.testing.assert_allclose(found.mean[5], exact(rho=0.5)[0][5], atol=1e-4)
    bare = inference(0.5, uncertainty=False)
    assert bare(bare.likelihood.latents(cells), slice(0, 40)).variance is None


@pytest.mark.parametrize(
    ("method", "kind", "rho"), [("gibbs", Gaussian(), [1.0] * 40), ("split", Gaussian(), [1.0] * 40)]
)
def test_chains_agree_with_the_closed_form(method, kind, rho):
    genes = np.arange(D) if method == "gibbs" else np.arange(D - 10)
    told = []
    run = inference(rho, method=method, kind=kind, gibbs=Gibbs(burn_in=10, n_chains=4), genes=genes, told=told)
    found = run(run.likelihood.latents(CELLS[:, genes]), slice(0, 40))
    assert told == [40] * 160
    noise = run.likelihood.covariance * NOISE**2 + np.eye(K)
    prior = SCALE**2 * np.diag(VARIANCES.numpy())
    mean = run.likelihood.latents(CELLS[:, genes]).y @ np.linalg.inv(prior + noise) @ prior
    literal = 0.3 if method == "gibbs" else 0.25
    assert np.sqrt(np.mean((found.mean - mean) ** 2)) < literal


@pytest.mark.parametrize("per_gene", [True, False])
def test_heavy_tails_look_at_genes_or_at_cells(per_gene):
    run = inference([1.0] * 3, method="gibbs", kind=StudentT(per_gene=per_gene))
    latents = run.likelihood.latents(CELLS)
    gaussian = GaussianStep(torch.as_tensor(Y), torch.ones(K), torch.eye(K))
    rest = gaussian, run.likelihood, latents.residual, run.plan.noise, CELLS if per_gene else None, SCALE
    step = likelihood_step(run.plan.likelihood, *rest)
    assert isinstance(step, StudentGeneStep if per_gene else StudentCellStep)
    assert np.isfinite(run(latents, slice(0, 40), CELLS).mean).all()
    assert likelihood_step(Gaussian(), *rest) is gaussian


def test_a_posterior_that_is_not_finite_is_refused():
    run = inference(0.5)
    latents = run.likelihood.latents(CELLS)
    latents.y[0, 0] = np.nan
    with pytest.raises(dice.DiceError, match=r"not finite with noise 0\.8 and rho 0\.5: pass values"):
        run(latents, slice(0, 40))
