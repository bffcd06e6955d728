"""Stored calls, as they are made again for samples."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest

import dice
from dice._arguments import as_plain
from dice._query.samples import denoised_query, posterior_samples, stored_call


def record(likelihood="auto", method="auto", *, measured=False, noise=0.4):
    call = {"likelihood": likelihood, "method": method, "rho": 0.5}
    return {
        "call": as_plain(call),
        "params": {"method": "direct", "measured": measured, "noise": noise},
        "shift": {"strategy": "none"},
    }


@pytest.mark.parametrize("noise", [0.4, 2.0])
def test_noise_that_was_estimated_once_stays(noise):
    """A part of the cells would have noise of its own."""
    call = stored_call(record(noise=noise))
    assert call["likelihood"] == dice.Gaussian(noise=noise)
    assert (call["rho"], call["shift"], call["check"]) == (0.5, {"strategy": "none"}, False)
    assert stored_call(record(dice.StudentT(df=5.0), noise=noise))["likelihood"] == dice.StudentT(df=5.0, noise=noise)


def test_other_noise_is_left_as_it_was():
    assert stored_call(record(measured=True))["likelihood"] == "auto"
    assert stored_call(record(noise=0.0))["likelihood"] == "auto"
    assert stored_call(record(dice.Gaussian(noise=0.3)))["likelihood"] == dice.Gaussian(noise=0.3)


def test_a_function_cannot_be_stored():
    with pytest.raises(dice.DiceError, match="made with the function 'tail', which is not stored"):
        stored_call(record("tail"))


def test_samples_that_are_stored_are_read():
    adata = ad.AnnData(np.zeros((4, 2), np.float32))
    adata.obsm["X_dice_samples"] = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2)
    for n in (1, 3):
        np.testing.assert_array_equal(posterior_samples(adata, None, n, "X_dice"), adata.obsm["X_dice_samples"][:, :n])
    with pytest.raises(dice.DiceError, match=r"adata.obsm has no embedding 'X_dice': call dice.tl.denoise"):
        posterior_samples(adata, None, 4, "X_dice")
    assert denoised_query(adata, None, "X_dice") is None
    adata.uns["X_dice"] = {"call": {}}
    with pytest.raises(dice.DiceError, match=r"was not written by dice.tl.denoise"):
        denoised_query(adata, None, "X_dice")
