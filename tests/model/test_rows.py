"""Thinned copies of the reference as rows, and the trainer that begins with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from dice._model import training_data
from dice._model.counts import recover
from dice._model.pca import fit_projection
from dice._model.training import make_trainer
from dice._model.training_data import Rows, TrainingData, make_rows, n_copies
from dice._train import cells

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(RNG.gamma(1, 20, size=(3, 25))[RNG.integers(3, size=80)]) + (np.arange(25) == 0)
CELLS = sparse.csr_array(np.log1p(COUNTS * (1e4 / COUNTS.sum(1))[:, None]).astype(np.float32))


@pytest.fixture(scope="module")
def projection():
    from oracle import Chunks

    return fit_projection(Chunks(lambda: [CELLS]).total, n_latent=3)


@pytest.mark.parametrize(("n", "copies"), [(0, 16), (100, 16), (4000, 16), (5000, 13), (16_000, 4), (90_000, 2)])
def test_fewer_cells_are_copied_more_often(n, copies):
    """Up to 64,000 rows: at most 16 copies and at least two."""
    assert n_copies(n) == copies


def test_a_row_holds_a_part_the_rest_and_its_halves(projection):
    made = make_rows(projection, recover(CELLS), np.random.default_rng(0), target_sum=1e4)
    assert made.shape == (16, 80, 4 * 3 + 3)
    part, rest, half = made[..., 12].exp(), made[..., 13].exp(), made[..., 14].exp()
    total = torch.as_tensor(COUNTS.sum(1) / 1e4)
    # All counts are in the part or in the rest, and half of that in each half.
    np.testing.assert_allclose(part + rest, total.expand(16, -1), rtol=1e-3)
    np.testing.assert_allclose(2 * half, rest, rtol=1e-5)
    shares = (part / total).numpy()
    assert 0.03 < shares.min() < 0.12
    assert 0.65 < shares.max() < 0.9
    # Log-uniform between 5 and 80 per cent: half of them are below 20.
    assert abs((shares < 0.2).mean() - 0.5) < 0.07
    # The rest is deep: its latents are those of the cell, up to the noise of its counts.
    whole = torch.as_tensor(projection.project(CELLS))
    correlations = [torch.corrcoef(torch.stack([made[:, :, 3 + j].mean(0), whole[:, j]]))[0, 1] for j in range(3)]
    assert min(correlations) > 0.9


def test_parts_of_rows_and_their_units(projection):
    made = make_rows(projection, recover(CELLS), np.random.default_rng(0), target_sum=1e4).flatten(0, 1)
    parts = Rows(made, 3)
    assert torch.equal(torch.cat([parts.noisy, parts.target, parts.first, parts.second], 1), made[:, :12])
    assert torch.equal(torch.cat([parts.depths, parts.half_depths], 1), made[:, [12, 13, 12, 14]])
    # The covariance of halves is free of their noise; as shallow as they are, log1p bends their latents a little more.
    spread = float(parts.target.var(0).mean().sqrt())
    assert 0.8 * spread < parts.clean_scale() < 1.2 * spread
    scaled = Rows(parts.scaled(2.0), 3)
    torch.testing.assert_close(scaled.second, parts.second / 2)
    assert torch.equal(scaled.half_depths, parts.half_depths)


def test_without_counts_a_row_is_the_latents_of_a_cell():
    latents = torch.randn(6, 3)
    parts = Rows(latents, 3)
    for part in (parts.noisy, parts.target, parts.first, parts.second):
        assert torch.equal(part, latents)
    assert parts.depths is None
    assert parts.half_depths is None


def test_the_trainer_begins_at_the_linear_filter(projection):
    made = make_rows(projection, recover(CELLS), np.random.default_rng(0), target_sum=1e4)
    train, held_out = made[:, :60].flatten(0, 1), made[:, 60:].flatten(0, 1)
    data = TrainingData(train, held_out, 1.0, 3, np.arange(60), typical=-4.0)
    trainer = make_trainer("default", data, noise=0.1, max_steps=5)
    assert trainer.config.max_steps == 5
    assert trainer.best_loss == 1.0
    assert trainer.held_out.loss(trainer.denoiser) == pytest.approx(1.0)
    assert make_trainer("default", replace(data, held_out=None), noise=0.1).held_out is None


def test_settings_that_results_depend_on():
    """Measured, with the evidence beside them: a change is one of numerics, and belongs into the changelog."""
    shares = training_data.SMALLEST_SHARE, training_data.LARGEST_SHARE
    assert (*shares, cells.MAX_MEASURED) == (0.05, 0.8, 16_000)
