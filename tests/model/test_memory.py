"""A device that is too small: chunks are halved, the answer stays, and the user hears of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dice
from dice._model.inference import Inference
from dice._model.training import Trainer


@pytest.mark.parametrize("genes", [slice(None), slice(None, None, 2)], ids=["direct", "split"])
@pytest.mark.filterwarnings("ignore:.*genes found:dice.DiceWarning")
def test_denoising_goes_on_in_smaller_chunks_and_says_so(genes, monkeypatch):
    reference, query = dice.datasets.synthetic(1, n_reference=200, n_query=90)
    dice.tl.train_prior(reference, n_latent=5, scale=False, training=dice.Training(max_steps=10))
    query = query[:, genes].copy()
    expected = dice.tl.denoise(query, reference, rho=10, n_samples=2, copy=True)
    compute, tried = Inference._posterior, []

    def small(self, latents, rows, chunk):
        tried.append(len(latents))
        if len(latents) > 20:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return compute(self, latents, rows, chunk)

    monkeypatch.setattr(Inference, "_posterior", small)
    with pytest.warns(dice.DiceWarning, match="too little memory for a chunk: 11 cells were computed at a time"):
        dice.tl.denoise(query, reference, rho=10, n_samples=2)
    for key in ("X_dice", "X_dice_samples"):
        np.testing.assert_allclose(query.obsm[key], expected.obsm[key], atol=1e-3)
    assert tried == [90, 45, 22, 11, 11, 23, 11, 12, 45, 22, 11, 11, 23, 11, 12]


def test_no_cell_fits(monkeypatch):
    def full(*_):
        raise torch.cuda.OutOfMemoryError("out of memory")

    reference, query = dice.datasets.synthetic(1, n_reference=200, n_query=9)
    dice.tl.train_prior(reference, n_latent=5, scale=False, training=dice.Training(max_steps=10))
    monkeypatch.setattr(Inference, "_posterior", full)
    with pytest.raises(dice.DiceError, match=r"too small for a single cell: set dice.settings.device = 'cpu'"):
        dice.tl.denoise(query, reference, rho=10)
    assert "X_dice" not in query.obsm


def test_training_names_a_smaller_batch(monkeypatch):
    def full(self):
        raise torch.cuda.OutOfMemoryError("out of memory")

    reference, _ = dice.datasets.synthetic(1, n_reference=50)
    monkeypatch.setattr(Trainer, "_step", full)
    with pytest.raises(dice.DiceError, match=r"batches of 512 cells: pass .*batch_size=128"):
        dice.tl.train_prior(reference, n_latent=3)
    assert not reference.uns.get("dice")
