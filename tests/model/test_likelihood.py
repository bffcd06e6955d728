"""The Gaussian likelihood against its closed form, and the noise of cells by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.projection import Projection
from dice.options import Gaussian, Options, StudentT

D, K = 12, 3
RNG = np.random.default_rng(0)
LOADINGS = np.linalg.qr(RNG.normal(size=(D, K)))[0].astype(np.float32)
GENE_NOISE = np.array([0.001, *RNG.uniform(0.2, 2, D - 1)], dtype=np.float32)
PROJECTION = Projection(
    mean=RNG.uniform(1, 2, D).astype(np.float32),
    scale=RNG.uniform(0.5, 2, D).astype(np.float32),
    center=RNG.normal(size=D).astype(np.float32) / 10,
    cap=10.0,
    loadings=LOADINGS,
    singular_values=np.array([9.0, 8, 7, 1, 1], dtype=np.float32),
    gene_noise=GENE_NOISE,
    noise=0.7,
)
CELLS = np.maximum(RNG.normal(1, 1, size=(20, D)), 0).astype(np.float32)
X = (CELLS - PROJECTION.mean) / PROJECTION.scale - PROJECTION.center
SOME = np.array([0, 1, 2, 4, 5, 7, 8, 11])


@pytest.mark.parametrize("genes", [np.arange(D), SOME], ids=["all", "some"])
@pytest.mark.parametrize("per_gene", [False, True])
def test_latents_are_the_weighted_least_squares(genes, per_gene):
    """y = (V'WV)^-1 V'Wx, and what is left over is the residual, with the noise of genes bounded from below."""
    likelihood = GaussianLikelihood(PROJECTION, genes, per_gene=per_gene)
    assert likelihood.complete == (len(genes) == D)
    assert likelihood.isotropic == (len(genes) == D and not per_gene)
    weights = np.ones(len(genes))
    if per_gene:
        weights = 1 / np.maximum(GENE_NOISE[genes] / GENE_NOISE.mean(), 0.05)
        assert weights[0] == 20
    v = LOADINGS[genes].astype(np.float64)
    precision = v.T @ (weights[:, None] * v)
    if not likelihood.isotropic:
        precision += 1e-3 * np.trace(precision) / K * np.eye(K)
    exact = X[:, genes] @ (weights[:, None] * v) @ np.linalg.inv(precision)
    y, variance = likelihood.read(CELLS[:, genes])
    np.testing.assert_allclose(y, exact, atol=1e-5)
    left = (weights * X[:, genes] ** 2).sum(1) - np.einsum("nk,kl,nl->n", exact, precision, exact)
    np.testing.assert_allclose(variance, left / (len(genes) - K), rtol=1e-4)
    np.testing.assert_allclose(likelihood.covariance, np.linalg.inv(precision), rtol=1e-4, atol=1e-6)
    spread = np.linalg.eigvalsh(np.linalg.inv(precision)) * 0.25
    assert likelihood.noise_range(0.5) == pytest.approx((spread[0], spread[-1]), rel=1e-4)
    assert likelihood.degrees_of_freedom == len(genes) - K
    other, again = likelihood.read(sparse.csr_array(CELLS[:, genes]))
    np.testing.assert_allclose(other, y, atol=1e-5)
    np.testing.assert_allclose(again, variance, rtol=1e-4)


def test_missing_genes_are_filled_in_where_their_variances_are_known():
    variances = np.array([4.0, 2.0, 1.0])
    filled = GaussianLikelihood(PROJECTION, SOME, fill_in=variances)
    assert filled.isotropic
    assert not filled.complete
    seen, x = LOADINGS[SOME].astype(np.float64), X[:, SOME]
    w = x @ seen @ np.linalg.inv(seen.T @ seen + np.diag(0.7**2 / variances))
    completed = np.zeros_like(X)
    completed[:, SOME] = x
    hidden = np.setdiff1d(np.arange(D), SOME)
    completed[:, hidden] = w @ LOADINGS[hidden].T
    y, variance = filled.read(CELLS[:, SOME])
    np.testing.assert_allclose(y, completed @ LOADINGS, atol=1e-5)
    np.testing.assert_allclose(x @ filled.readout, y, atol=1e-5)
    np.testing.assert_allclose(variance, ((x - w @ seen.T) ** 2).sum(1) / (len(SOME) - K), rtol=1e-4)
    for kept in (
        GaussianLikelihood(PROJECTION, SOME, fill_in=variances, per_gene=True),
        GaussianLikelihood(PROJECTION, np.arange(D), fill_in=variances),
        GaussianLikelihood(PROJECTION, SOME),
    ):
        assert not kept.filled
        assert not kept.filter.any()
        assert not kept.added.any()


def test_a_single_gene_has_one_degree_of_freedom():
    likelihood = GaussianLikelihood(PROJECTION, np.array([3]))
    assert likelihood.degrees_of_freedom == 1
    assert np.isfinite(likelihood.covariance).all()
    assert (likelihood.read(CELLS[:, [3]])[1] >= 0).all()


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_cells_without_expression_are_at_the_origin(kind):
    likelihood, cells = GaussianLikelihood(PROJECTION, np.arange(D)), CELLS.copy()
    cells[[2, 5]] = 0
    latents = likelihood.latents(kind(cells))
    np.testing.assert_array_equal(np.flatnonzero(latents.empty), [2, 5])
    np.testing.assert_array_equal(np.flatnonzero(~latents.y.any(1)), [2, 5])
    values = GaussianLikelihood(PROJECTION, np.arange(D), zero_is_empty=False).latents(kind(cells))
    assert not values.empty.any()
    assert values.y.any(1).all()


def test_the_energy_of_cells_is_that_of_their_genes():
    likelihood = GaussianLikelihood(PROJECTION, np.arange(D))
    np.testing.assert_allclose(likelihood.energy(likelihood.latents(CELLS)), (X**2).sum(1), rtol=1e-4)


@pytest.mark.parametrize("genes", [np.arange(D), SOME], ids=["all", "some"])
def test_cells_without_a_residual_have_no_negative_noise(genes):
    """Of cells that the loadings explain, rounding may leave a sum of squares that is below zero."""
    exact = RNG.normal(size=(500, K)) @ LOADINGS.T
    cells = ((exact + PROJECTION.center) * PROJECTION.scale + PROJECTION.mean).astype(np.float32)
    _, variance = GaussianLikelihood(PROJECTION, genes).read(cells[:, genes])
    assert variance.min() >= 0
    if len(genes) == D:
        assert variance.max() < 1e-5


def latents_of(residual, empty=None):
    n = len(residual)
    empty = np.zeros(n, dtype=bool) if empty is None else empty
    return Latents(np.zeros((n, K), np.float32), np.asarray(residual, np.float32), empty, np.zeros(n, np.float32))


def test_parts_are_joined_in_their_order():
    parts = [latents_of([1.0, 2.0]), latents_of([3.0])]
    joined = Latents.joined(parts, K)
    np.testing.assert_array_equal(joined.residual, [1, 2, 3])
    assert Latents.joined([], K).y.shape == (0, K)
    np.testing.assert_array_equal(joined[1:].residual, [2, 3])


def noise_of(likelihood, latents, noise, df=None):
    options = Options(likelihood=Gaussian(noise) if df is None else StudentT(df, noise=noise))
    return likelihood.noise(latents, options)


def test_noise_is_the_root_of_the_mean_residual():
    likelihood = GaussianLikelihood(PROJECTION, np.arange(D))
    latents = latents_of([1.0, 2.0, 100.0], empty=np.array([False, False, True]))
    assert noise_of(likelihood, latents, "estimate") == pytest.approx(1.5**0.5)
    assert noise_of(likelihood, latents, 0.3) == 0.3
    nobody = latents_of([1.0], empty=np.array([True]))
    assert noise_of(likelihood, nobody, "estimate") == 0


@pytest.mark.parametrize(("df", "factor"), [(None, 1.0), (4.0, 0.5**0.5), (2.0, 0.5), (1.0, 0.5**0.5)])
def test_the_scale_of_students_t_is_smaller_than_its_deviation(df, factor):
    """The variance of Student's t is df / (df - 2) times the square of its scale, as far as it has one."""
    likelihood = GaussianLikelihood(PROJECTION, np.arange(D))
    assert noise_of(likelihood, latents_of([4.0, 4.0]), "estimate", df) == pytest.approx(2 * factor)


@pytest.mark.parametrize(("n_genes", "expected"), [(5, 0.7), (6, 2.0)])
def test_too_few_genes_leave_the_noise_of_the_reference(n_genes, expected):
    """Two genes for every latent are the fewest that leave a residual to measure."""
    likelihood = GaussianLikelihood(PROJECTION, np.arange(n_genes))
    assert noise_of(likelihood, latents_of([4.0, 4.0]), "estimate") == pytest.approx(expected)


def test_missing_genes_add_noise():
    filled = GaussianLikelihood(PROJECTION, SOME, fill_in=np.array([4.0, 2.0, 1.0]))
    w_noise = 0.7**2 * np.linalg.inv(LOADINGS[SOME].T @ LOADINGS[SOME] + np.diag(0.7**2 / np.array([4.0, 2.0, 1.0])))
    missing = np.eye(K) - LOADINGS[SOME].T @ LOADINGS[SOME]
    np.testing.assert_allclose(filled.added, np.diagonal(missing @ w_noise @ missing), rtol=1e-4)
    assert noise_of(filled, latents_of([4.0, 4.0]), "estimate") == 2
