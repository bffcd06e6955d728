"""What a call decides: the method, rho of every iteration, burn-in, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import dice
from dice._model.inference import Plan
from dice.options import Direct, Gaussian, Gibbs, Options, StudentT


def planned(rho=0.5, *, isotropic=True, measured=False, largest=np.inf, noise_range=(0.1, 0.2), **options):
    prior = SimpleNamespace(
        latent_scale=1.0, projection=SimpleNamespace(noise=0.5), denoiser=SimpleNamespace(largest_noise=largest)
    )
    likelihood = SimpleNamespace(
        isotropic=isotropic, noise=lambda *_: 0.3, added=np.array(0.16), noise_range=lambda level: noise_range
    )
    latents = SimpleNamespace(empty=np.zeros(3, dtype=bool))
    return Plan.of(Options(rho=rho, **options), prior, likelihood, latents, measured=measured)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("direct", {}),
        ("direct", {"likelihood": Gaussian()}),
        ("direct", {"method": "direct"}),
        ("direct", {"measured": True}),
        ("split", {"isotropic": False}),
        ("split", {"method": Gibbs(fast=True)}),
        ("gibbs", {"method": "gibbs"}),
        ("gibbs", {"likelihood": StudentT()}),
        ("gibbs", {"rho": (2.0, 0.5)}),
    ],
)
def test_methods(method, arguments):
    plan = planned(**arguments)
    assert plan.method == method
    assert plan.rho == 0.5
    assert (plan.n_steps == 1) == (method == "direct")
    assert plan.measured == arguments.get("measured", False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "direct", "isotropic": False}, "method='direct' needs"),
        ({"method": "direct", "likelihood": StudentT()}, "method='direct' needs"),
        ({"method": "direct", "rho": (2.0, 0.5)}, "method='direct' needs"),
        ({"method": Gibbs(fast=True), "likelihood": StudentT()}, r"Gibbs\(fast=True\) is for Gaussian noise"),
        ({"method": Gibbs(fast=True), "rho": (2.0, 0.5)}, r"Gibbs\(fast=True\) is for Gaussian noise"),
    ],
)
def test_refused(arguments, sentence):
    with pytest.raises(dice.DiceError, match=sentence):
        planned(**arguments)


def test_iterations_of_the_fastest_chain():
    """Variances from 0.25 to 0.5 with rho on top: half of an error is carried over at most."""
    plan = planned(0.0, isotropic=False, noise_range=(0.25, 0.5))
    assert (len(plan.rhos), plan.gibbs.burn_in) == (21, 7)
    plan = planned(0.5, isotropic=False, noise_range=(0.0, 0.25))
    assert (len(plan.rhos), plan.gibbs.burn_in) == (21, 7)
    assert plan.n_steps == 21
    assert planned(0.5, isotropic=False, n_samples=3).n_steps == 3 * len(planned(0.5, isotropic=False).rhos)
    fixed = planned(0.5, method=Gibbs(fast=True, n_iterations=5, burn_in=1, n_chains=2))
    assert (len(fixed.rhos), fixed.gibbs.burn_in, fixed.n_steps) == (5, 1, 10)


def test_iterations_of_algorithm_1():
    plan = planned((5.0, 0.5), method=Gibbs(n_iterations=10))
    np.testing.assert_allclose(plan.rhos, np.linspace(5, 0.5, 10))
    assert plan.gibbs.burn_in == 3
    np.testing.assert_allclose(
        planned((5.0, 0.5), method=Gibbs(n_iterations=4, schedule="geometric")).rhos, np.geomspace(5, 0.5, 4)
    )
    assert planned((5.0, 0.5), method=Gibbs(burn_in=0)).gibbs.burn_in == 0


def test_rho_beyond_what_the_network_was_trained_for():
    plan = planned((5.0, 0.5), method=Gibbs(n_iterations=10), largest=3.0)
    np.testing.assert_allclose(plan.rhos, np.minimum(np.linspace(5, 0.5, 10), 3.0))
    assert planned(3.0, largest=3.0).rho == 3.0


def test_genes_that_are_filled_in_add_noise():
    plan = planned()
    assert (plan.noise, plan.level) == (0.3, pytest.approx(0.5))


def test_who_needs_single_genes():
    assert planned(likelihood=StudentT(per_gene=True)).needs_genes
    assert planned(likelihood=lambda residual: -residual.square().sum(1)).needs_genes
    for likelihood in (StudentT(per_gene=False), Gaussian(), "auto"):
        assert not planned(likelihood=likelihood).needs_genes


def test_uncertainty_is_asked_for_twice():
    assert planned().uncertainty
    assert not planned(uncertainty=False).uncertainty
    assert not planned(method=Direct(uncertainty=False)).uncertainty
