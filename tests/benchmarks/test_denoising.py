"""How denoising is judged, by cases that can be told by hand."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

from dice._data.matrix import Matrix
from dice._model.pca import fit_projection


@pytest.fixture
def denoising(script):
    return script("denoising")


def cells(n=60, d=30, seed=0) -> ad.AnnData:
    """Log-normalised counts; the last gene has been left out after the normalisation."""
    counts = np.random.default_rng(seed).poisson(3.0, (n, d + 1)).astype(float)
    values = np.log1p(counts / counts.sum(1, keepdims=True) * 1e4)
    return ad.AnnData(sparse.csr_matrix(values[:, :-1].astype(np.float32)))


def test_halves_are_the_counts_and_leave_each_other_alone(denoising) -> None:
    whole = cells()
    first, second = denoising.in_halves(whole, 0)
    counts = denoising.recover(whole.X).counts.toarray()
    np.testing.assert_array_equal(first.counts.toarray() + second.counts.toarray(), counts)
    before = second.counts.toarray()
    values = denoising.values_of(first, whole)
    np.testing.assert_array_equal(second.counts.toarray(), before)
    np.testing.assert_array_equal(denoising.recover(values.X).counts.toarray(), first.counts.toarray())


def test_the_poisson_loss_is_least_at_the_truth(denoising) -> None:
    whole = cells(n=400)
    first, second = denoising.in_halves(whole, 0)
    truth = np.full(whole.shape, np.log1p(300.0))
    wrong = truth.copy()
    wrong[:, ::2] += 0.5
    found = [denoising.poisson_loss(guess, first, second) for guess in (truth, wrong)]
    # 1.5 counts are expected of every gene in a half: 1.5 - 1.5 log 1.5 = 0.892.
    assert found[0] == pytest.approx(0.892, abs=0.05)
    assert found[1] > found[0]
    # A gene that is expected nowhere costs log(1e-6) for each of its counts, not infinity.
    wrong[:, 0] = 0
    assert denoising.poisson_loss(wrong, first, second) > found[1]


def test_pairs_that_go_together_are_counted(denoising) -> None:
    before = np.random.default_rng(0).normal(size=(5000, 4))
    alike = before.copy()
    alike[:, 1] = alike[:, 0]
    assert denoising.coupling(before, before) == pytest.approx({"correlated": 0, "created": 0, "left": 1}, abs=1e-6)
    assert denoising.coupling(alike, before)["correlated"] == pytest.approx(1 / 6)
    # What is left is little: as correlated as before, and next to nothing of the genes' variance.
    faint = denoising.coupling(0.01 * alike, before)
    assert faint == pytest.approx({"correlated": 1 / 6, "created": 0, "left": 0.01}, abs=1e-3)
    constant = denoising.coupling(np.ones_like(before), before)
    assert constant == {"correlated": 0, "created": 0, "left": 0}


def test_latents_come_back_to_the_expression_that_they_were_projected_from(denoising) -> None:
    whole = cells(d=10)
    fitted = fit_projection(Matrix(whole).total, n_latent=10)
    values = whole.X.toarray()
    latents = fitted.project(whole.X)
    made = denoising.Cells(values, values, fitted, latents, latents, latents, 0)
    np.testing.assert_allclose(made.back(latents), values, atol=1e-3)
