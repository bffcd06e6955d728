"""A new network is one file: it is trained, stored, loaded and used without a change anywhere else."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import dice
from dice._errors import PriorFormatError
from dice._model import networks
from dice._model.networks import NETWORKS

#: The best linear denoiser, with a variance for every latent and a step of its own.
SOURCE = '''
from typing import ClassVar

import torch
from torch import nn

from dice._model.networks import Denoiser, Preset, TrainingConfig
from dice._model.sampler import as_column


class LinearDenoiser(Denoiser):
    """D(z; s) = v / (v + s^2) z with learned variances v."""

    kind = "linear"
    bounds: ClassVar = {"power": 4}
    presets: ClassVar = {"linear": Preset(TrainingConfig(max_steps=200, learning_rate=0.05), {"power": 1})}
    least_batch = 3
    largest_noise = 2.0

    def __init__(self, n_latent, power):
        super().__init__()
        self.n_latent, self.power = n_latent, power
        self.logs = nn.Parameter(torch.zeros(n_latent))

    def initialize(self, generator):
        nn.init.zeros_(self.logs)

    def forward(self, z, s, log_depth=None):
        variances = (self.power * self.logs).exp()
        return variances / (variances + as_column(s, z).square()) * z

    def loss(self, clean, generator):
        noisy = clean + torch.randn(clean.shape, generator=generator)
        return (self(noisy, torch.tensor(1.0)) - clean).square().mean()

    def draw(self, z, s, noise):
        return torch.full_like(z, float(s))
'''


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """A file among the networks, as long as these tests take."""
    folder = tmp_path_factory.mktemp("networks")
    (folder / "linear.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "__path__", [*networks.__path__, str(folder)])
        networks.discover()
        yield NETWORKS["linear"]
    del NETWORKS["linear"], sys.modules["dice._model.networks.linear"]


@pytest.fixture
def cells():
    return dice.datasets.synthetic(1, n_reference=200, n_query=30)


def test_a_file_is_all_that_a_network_needs(linear, cells, tmp_path):
    reference, query = cells
    dice.tl.train_prior(reference, n_latent=3, scale=False, preset="linear")
    reference.write_h5ad(tmp_path / "reference.h5ad")
    prior = dice.Prior.load(tmp_path / "reference.h5ad")
    assert type(prior.denoiser) is linear
    assert prior.denoiser.config == {"n_latent": 3, "power": 1}
    variances = reference.obsm["X_dice_pca"].var(0) / prior.latent_scale**2
    np.testing.assert_allclose(prior.denoiser.logs.exp(), variances, rtol=0.5)
    dice.tl.denoise(query, prior, rho=1.0, n_samples=2)
    assert np.isfinite(query.obsm["X_dice_samples"]).all()


def test_a_network_is_asked_for_its_smallest_batch_and_its_own_steps(linear, cells):
    reference, query = cells
    with pytest.raises(dice.DiceError, match=r"preset='linear' .* pass batch_size=3 or more"):
        dice.tl.train_prior(reference, n_latent=3, preset="linear", training=dice.Training(batch_size=2))
    dice.tl.train_prior(reference, n_latent=3, scale=False, preset="linear", training=dice.Training(max_steps=5))
    scale = dice.Prior.from_anndata(reference).latent_scale
    with pytest.warns(dice.DiceWarning, match="larger than the noise that the network was trained on"):
        dice.tl.denoise(query, reference, method="gibbs", rho=5 * scale, n_samples=1)
    np.testing.assert_allclose(query.obsm["X_dice_samples"], 2.0 * scale, rtol=1e-5)


def test_arguments_beyond_their_bounds_are_refused(linear, cells):
    reference, _ = cells
    dice.tl.train_prior(reference, n_latent=3, scale=False, preset="linear", training=dice.Training(max_steps=5))
    prior = dice.Prior.from_anndata(reference)
    prior.denoiser.power = 5
    with pytest.raises(PriorFormatError, match="out of bounds"):
        dice.Prior.from_arrays(prior.to_arrays())


@pytest.mark.parametrize("kind", ["depth", "mixture", "paper"])
def test_every_network_keeps_its_contract(kind):
    network = NETWORKS[kind]
    sizes = {"n_latent": 2, **dict.fromkeys(network.bounds, 2)}
    denoiser = network.empty(sizes)
    denoiser.initialize(torch.Generator().manual_seed(0))
    assert denoiser.config == sizes
    assert network.presets
    if all(preset.training for preset in network.presets.values()):
        with pytest.raises(TypeError, match="is trained"):
            network.fit(torch.zeros(4, 2), None, 0)
    else:
        with pytest.raises(TypeError, match="is fitted"):
            denoiser.loss(torch.zeros(4, 2), torch.Generator())


def test_a_subclass_without_a_name_of_its_own_is_not_registered():
    class Other(NETWORKS["depth"]):
        pass

    assert NETWORKS["depth"] is not Other
