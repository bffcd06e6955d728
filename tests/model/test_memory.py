"""A device that is too small: chunks are halved, the answer stays, and the user hears of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dice
from dice._model.inference import Inference
from dice._model.posterior import Halving, Posterior
from dice._model.training import Trainer


def device_for(most: int, tried: list[int]):
    """Computes up to `most` cells at once, and runs out of memory with more."""

    def compute(rows: slice) -> Posterior:
        size = rows.stop - rows.start
        tried.append(size)
        if size > most:
            raise torch.cuda.OutOfMemoryError("out of memory")
        cells = torch.arange(rows.start, rows.stop, dtype=torch.float32)
        return Posterior(cells[:, None], None, 2 * cells)

    return compute


@pytest.mark.parametrize("most", [1, 3, 30, 100])
def test_halves_add_up_to_the_whole(most):
    tried: list[int] = []
    halving = Halving()
    for _ in range(2):
        result = halving(device_for(most, tried), 100)
        assert result.mean[:, 0].tolist() == list(range(100))
        assert result.variance.tolist() == [2 * cell for cell in range(100)]
        assert result.samples is None
    # What failed once is not tried again: a few failures, all of them at the beginning.
    failures = [size for size in tried if size > most]
    assert tried[: len(failures)] == failures
    assert len(failures) <= 7


def test_no_cell_fits():
    with pytest.raises(dice.DiceError, match=r"too small for a single cell: set dice.settings.device = 'cpu'"):
        Halving()(device_for(0, []), 100)


def test_nobody_is_asked_for():
    assert Halving()(device_for(10, []), 0).mean.shape == (0, 1)


@pytest.mark.parametrize("genes", [slice(None), slice(None, None, 2)], ids=["direct", "split"])
@pytest.mark.filterwarnings("ignore:.*genes found:dice.DiceWarning")
def test_denoising_goes_on_in_smaller_chunks_and_says_so(genes, monkeypatch):
    reference, query = dice.datasets.synthetic(1, n_reference=200, n_query=90)
    dice.tl.train_prior(reference, n_latent=5, scale=False, training=dice.Training(max_steps=10))
    query = query[:, genes].copy()
    expected = dice.tl.denoise(query, reference, rho=10, n_samples=2, copy=True)
    compute = Inference._posterior

    def small(self, observed, seeds):
        if len(seeds) > 20:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return compute(self, observed, seeds)

    monkeypatch.setattr(Inference, "_posterior", small)
    with pytest.warns(dice.DiceWarning, match="too little memory for a chunk: 11 cells were computed at a time"):
        dice.tl.denoise(query, reference, rho=10, n_samples=2)
    for key in ("X_dice", "X_dice_samples"):
        np.testing.assert_allclose(query.obsm[key], expected.obsm[key], atol=1e-3)


def test_training_names_a_smaller_batch(monkeypatch):
    def full(self):
        raise torch.cuda.OutOfMemoryError("out of memory")

    reference, _ = dice.datasets.synthetic(1, n_reference=50)
    monkeypatch.setattr(Trainer, "_step", full)
    with pytest.raises(dice.DiceError, match=r"batches of 512 cells: pass .*batch_size=128"):
        dice.tl.train_prior(reference, n_latent=3)
    assert not reference.uns.get("dice")
