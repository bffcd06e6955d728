"""Losses of rho by hand, with denoisers whose answer is known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from dice._model.counts import CellCounts
from dice._model.likelihood import GaussianLikelihood
from dice._model.projection import Projection
from dice._query.rho import by_counts, by_genes

D, K = 12, 2
RNG = np.random.default_rng(0)
PROJECTION = Projection(
    mean=RNG.uniform(0.5, 1, D).astype(np.float32),
    scale=RNG.uniform(0.5, 2, D).astype(np.float32),
    center=np.zeros(D, dtype=np.float32),
    cap=10.0,
    loadings=np.linalg.qr(RNG.normal(size=(D, K)))[0].astype(np.float32),
    singular_values=np.ones(K, dtype=np.float32),
    gene_noise=np.ones(D, dtype=np.float32),
    noise=1.0,
)
GENES, GRID = np.arange(D), np.array([0.0, 0.5, 2.0])
COUNTS = RNG.poisson(4, size=(30, D)).astype(np.float64)
FACTORS = 20 / COUNTS.sum(1)
CELLS = np.log1p(COUNTS * FACTORS[:, None]).astype(np.float32)


def made_of(counts, factors):
    return CellCounts(sparse.csr_array(counts), factors, np.ones(len(counts), dtype=bool))


class Prior(SimpleNamespace):
    """Answers with a share of the latents, and keeps the levels that it was asked for."""

    def __init__(self, share):
        super().__init__(projection=PROJECTION, n_latent=K, share=share, levels=[])

    def mean(self, y, log_depth=None, rho=0.0):
        self.levels.append(rho)
        self.depths = log_depth
        return self.share * y


def test_genes_are_predicted_from_the_other_half():
    prior, rng = Prior(0.5), np.random.default_rng(1)
    found = by_genes(prior, CELLS, GENES, GRID, 0.7, rng)
    order = np.random.default_rng(1).permutation(D)
    loss, levels = np.zeros(len(CELLS)), []
    for seen, hidden in ((order[:6], order[6:]), (order[6:], order[:6])):
        likelihood = GaussianLikelihood(PROJECTION, seen)
        y = likelihood.read(CELLS[:, seen])[0]
        truth = (CELLS[:, hidden] - PROJECTION.mean[hidden]) / PROJECTION.scale[hidden]
        loss += ((truth - 0.5 * y @ PROJECTION.loadings[hidden].T) ** 2).mean(1) / 2
        levels += [np.hypot(0.7 * np.sqrt(np.trace(likelihood.covariance) / K), rho) for rho in GRID]
    np.testing.assert_allclose(found, np.repeat(loss[:, None], 3, axis=1), rtol=1e-4)
    assert prior.levels == pytest.approx(levels)


def test_counts_are_predicted_from_the_other_half():
    """Without any latents every gene is expected at its mean, brought to the total of the seen half."""
    prior = Prior(0.0)
    found = by_counts(prior, made_of(COUNTS, FACTORS), GENES, GRID, np.random.default_rng(1), measured=False)
    half = np.random.default_rng(1).binomial(COUNTS.astype(np.int64), 0.5)
    other, scale = COUNTS - half, FACTORS * COUNTS.sum(1) / half.sum(1)
    expected = np.expm1(PROJECTION.mean.astype(np.float64)) / scale[:, None]
    expected *= half.sum(0) / expected.sum(0)
    np.testing.assert_allclose(found[:, 0], (expected - other * np.log(expected)).mean(1), rtol=1e-5)
    residual = GaussianLikelihood(PROJECTION, GENES).read(np.log1p(half * scale[:, None]).astype(np.float32))[1]
    assert prior.levels == pytest.approx([np.hypot(np.sqrt(residual.mean()), rho) for rho in GRID], rel=1e-5)
    assert prior.depths is None
    # The noise of counts is that of the half's own depth, and rho is all that is assumed.
    prior = Prior(0.0)
    measured = by_counts(prior, made_of(COUNTS, FACTORS), GENES, GRID, np.random.default_rng(1), measured=True)
    np.testing.assert_array_equal(measured, found)
    assert prior.levels == pytest.approx(list(GRID))
    np.testing.assert_allclose(prior.depths, -np.log(scale))


def test_expected_counts_have_a_floor_and_a_ceiling():
    """A gene that the seen half never has is still expected at a twentieth of its mean in the other one."""
    counts = COUNTS.copy()
    counts[:, 0] = 0
    counts[0, 0] = 1
    seeds = [seed for seed in range(20) if not np.random.default_rng(seed).binomial(counts.astype(np.int64), 0.5)[0, 0]]
    found = by_counts(
        Prior(1.0), made_of(counts, FACTORS), GENES, GRID, np.random.default_rng(seeds[0]), measured=False
    )
    half = np.random.default_rng(seeds[0]).binomial(counts.astype(np.int64), 0.5)
    least = 0.05 * (counts - half)[:, 0].mean()
    assert least == pytest.approx(0.05 / 30)
    without = by_counts(
        Prior(1.0), made_of(counts, FACTORS), GENES, GRID, np.random.default_rng(seeds[0]), measured=False
    )
    np.testing.assert_array_equal(found, without)
    scale = FACTORS * counts.sum(1) / half.sum(1)
    y = GaussianLikelihood(PROJECTION, GENES).read(np.log1p(half * scale[:, None]).astype(np.float32))[0]
    values = y @ PROJECTION.loadings.T * PROJECTION.scale + PROJECTION.mean
    expected = np.expm1(np.clip(values, 0, 20)) / scale[:, None]
    expected = np.maximum(expected * half.sum(0) / np.maximum(expected.sum(0), 1e-12), 0.05 * (counts - half).mean(0))
    np.testing.assert_allclose(found[:, 0], (expected - (counts - half) * np.log(expected)).mean(1), rtol=1e-4)


def test_a_cell_without_counts_says_nothing():
    with_one = np.insert(COUNTS, 7, 0, axis=0)
    losses = [
        by_counts(Prior(0.3), made_of(counts, factors), GENES, GRID, np.random.default_rng(2), measured=False)
        for counts, factors in ((COUNTS, FACTORS), (with_one, np.insert(FACTORS, 7, 0)))
    ]
    np.testing.assert_array_equal(*losses)
