"""A prior to plain arrays and back, field by field."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hazards import forgery

from dice._errors import PriorFormatError
from dice._model.prior import LearnedPrior


def restored(kind="whole"):
    return LearnedPrior.from_arrays(copy.deepcopy(forgery.stored(kind)))


@pytest.mark.parametrize("kind", forgery.KINDS)
def test_what_was_read_is_written_again(kind):
    """Also the parts that a prior may lack."""
    before, after = forgery.stored(kind), restored(kind).to_arrays()
    assert set(before) == set(after)
    assert before["sha256"] == after["sha256"]
    for name in ("calibration", "soft_clusters"):
        assert (name in before) == (name in after)
        for column in before.get(name, {}):
            np.testing.assert_array_equal(before[name][column], after[name][column])


def test_the_network_is_used_where_it_is():
    prior = restored("gmm")
    assert prior.denoiser_on(torch.device("cpu")) is prior.denoiser
    elsewhere = prior.denoiser_on(torch.device("meta"))
    assert elsewhere is not prior.denoiser
    assert next(iter(elsewhere.state_dict().values())).device.type == "meta"


def test_denoising_in_pca_units():
    prior = restored("gmm")
    y = torch.randn(5, prior.n_latent, generator=torch.Generator().manual_seed(0)) * prior.latent_scale
    scaled = prior.denoiser(y / prior.latent_scale, torch.tensor(0.5))
    torch.testing.assert_close(prior.denoise(y, 0.5 * prior.latent_scale), scaled * prior.latent_scale)


def test_an_unknown_network_is_named_and_not_at_length():
    from dice._model.prior import _build

    with pytest.raises(PriorFormatError, match=r"unknown kind 'x{70,80}"):
        _build("x" * 4000, {}, {})


def test_means_at_a_depth_in_pca_units():
    """Cells of unknown depth are typical ones; without depths nothing but rho is noise."""
    prior = restored("counts")
    assert prior.measured
    y = np.random.default_rng(0).normal(size=(3, prior.n_latent)).astype(np.float32) * prior.latent_scale
    depths = np.array([prior.typical, np.nan, prior.typical - 1])
    scale, rho = prior.latent_scale, torch.tensor(0.5)
    known = torch.tensor([prior.typical, prior.typical, prior.typical - 1])
    exact = prior.denoiser(torch.as_tensor(y / scale), rho, known).numpy() * scale
    np.testing.assert_allclose(prior.mean(y, depths, 0.5 * scale), exact, rtol=1e-4, atol=1e-5)
    assert not np.allclose(prior.mean(y, rho=0.5 * scale), exact)
    assert np.isnan(restored("gmm").typical)


@pytest.mark.parametrize("change", [{"width": 1025}, {"width": 0}, {"depth": 17}, {"more": 1}])
def test_networks_beyond_their_bounds_are_refused(change):
    from dice._model.prior import _build

    with pytest.raises(PriorFormatError, match="'config' has values that are out of bounds"):
        _build("depth", {"n_latent": 3, "width": 8, "depth": 1} | change, {})
    with pytest.raises(PriorFormatError, match="missing or unknown entries of 'weights'"):
        _build("depth", {"n_latent": 3, "width": 1024, "depth": 16}, {})
