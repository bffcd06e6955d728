"""PCA against scikit-learn, on every kind of matrix and both algorithms."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import Chunks
from scipy import sparse
from sklearn.decomposition import PCA

from dice._model.pca import MAX_GRAM_GENES, _eigen_gram, elbow, fit_projection, fix_signs

RNG = np.random.default_rng(0)
FACTORS = RNG.normal(size=(90, 5)) * [6, 5, 4, 3, 2]
DENSE = (FACTORS @ RNG.normal(size=(5, 30)) + RNG.normal(size=(90, 30))).astype(np.float32)
COUNTS = np.log1p(RNG.poisson(np.exp(RNG.normal(size=(90, 30)) - 1))).astype(np.float32)


def in_chunks(matrix, size=17):
    return Chunks(lambda: (matrix[i : i + size] for i in range(0, matrix.shape[0], size))).total


def standardize(matrix, cap=10.0):
    scaled = np.clip((matrix - matrix.mean(0)) / matrix.std(0, ddof=1), -cap, cap)
    return scaled - scaled.mean(0)


@pytest.mark.parametrize("max_gram", [8000, 10], ids=["gram", "subspace"])
@pytest.mark.parametrize("scale", [True, False])
def test_equals_scikit_learn(scale, max_gram):
    projection = fit_projection(in_chunks(DENSE), n_latent=4, scale=scale, max_gram=max_gram)
    expected = PCA(4, svd_solver="full").fit(standardize(DENSE) if scale else DENSE)
    loadings = fix_signs(expected.components_.T)
    np.testing.assert_allclose(projection.loadings, loadings, atol=2e-4)
    np.testing.assert_allclose(projection.singular_values[:4], expected.singular_values_, rtol=1e-4)
    total = (standardize(DENSE) if scale else DENSE).var(0, ddof=1).sum()
    residual = total - expected.explained_variance_.sum()
    assert projection.noise == pytest.approx(np.sqrt(residual / (30 - 4)), rel=1e-4)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_sparse_chunks_give_the_dense_answer(kind):
    dense = fit_projection(in_chunks(COUNTS), n_latent=3)
    other = fit_projection(in_chunks(kind(COUNTS), size=40), n_latent=3)
    np.testing.assert_allclose(other.loadings, dense.loadings, atol=1e-4)
    np.testing.assert_allclose(other.project(kind(COUNTS)), dense.project(COUNTS), atol=1e-4)


def test_cap_is_applied_on_both_sides_of_sparse_chunks():
    """Also where a zero itself lies beyond the cap: a gene that is high in all cells but few."""
    matrix = np.abs(RNG.normal(5, 0.01, size=(400, 3))).astype(np.float32)
    matrix[0] = [0.0, 50.0, 5.0]
    projection = fit_projection(in_chunks(matrix, 100), n_latent=1)
    assert (projection.standardizer(matrix).dense() + projection.center).max() == 10
    assert (projection.standardizer(matrix).dense() + projection.center).min() == -10
    sparse_chunk = projection.standardizer(sparse.csr_array(matrix))
    np.testing.assert_allclose(sparse_chunk.dense(), projection.standardizer(matrix).dense(), atol=1e-5)
    weights = np.array([0.5, 1.0, 2.0], dtype=np.float32)
    np.testing.assert_allclose(
        sparse_chunk.squared_norms(weights),
        sparse_chunk.dense() ** 2 @ weights,
        rtol=1e-4,
        atol=1e-4,
    )


def test_loadings_are_orthonormal_and_signs_fixed():
    loadings = fit_projection(in_chunks(DENSE), n_latent=6).loadings
    np.testing.assert_allclose(loadings.T @ loadings, np.eye(6), atol=1e-5)
    assert (loadings[np.abs(loadings).argmax(0), range(6)] > 0).all()


def test_latents_are_centred():
    projection = fit_projection(in_chunks(COUNTS), n_latent=3)
    np.testing.assert_allclose(projection.project(COUNTS).mean(0), 0, atol=1e-4)


def test_constant_genes_become_zero():
    matrix = np.hstack([COUNTS, np.full((90, 2), 3.0, dtype=np.float32)])
    projection = fit_projection(in_chunks(matrix), n_latent=3)
    assert not projection.standardizer(matrix).dense()[:, -2:].any()
    np.testing.assert_allclose(projection.loadings[-2:], 0, atol=1e-6)
    assert projection.noise == pytest.approx(fit_projection(in_chunks(COUNTS), n_latent=3).noise)


@pytest.mark.parametrize("k", [2, 5, 15])
def test_elbow_finds_the_number_of_strong_components(k):
    spectrum = np.concatenate([np.linspace(60, 40, k), np.linspace(8, 6, 200)])
    assert elbow(spectrum) == k


def test_elbow_is_recorded_with_the_spectrum():
    projection = fit_projection(in_chunks(DENSE), n_latent="elbow")
    assert projection.n_latent == elbow(projection.singular_values)
    assert len(projection.singular_values) == 30


def test_more_genes_than_a_gram_matrix_should_have():
    """Beyond 8,000 genes subspace iteration takes over and finds the same components."""
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(60, 6)) * [9, 8, 7, 6, 5, 4] @ rng.normal(size=(6, MAX_GRAM_GENES + 100)) / 20
    matrix = (matrix + rng.normal(size=matrix.shape)).astype(np.float32)
    projection = fit_projection(in_chunks(matrix, 25), n_latent=4)
    values = standardize(matrix)
    _, singular_values, right = np.linalg.svd(values, full_matrices=False)
    np.testing.assert_allclose(projection.singular_values[:4], singular_values[:4], rtol=1e-4)
    overlap = np.abs(np.sum(projection.loadings * right[:4].T, axis=0))
    np.testing.assert_allclose(overlap, 1, atol=1e-3)
    residual = (values - values @ right[:4].T @ right[:4]) ** 2
    expected = np.sqrt(residual.sum() / (len(values) - 1) / (matrix.shape[1] - 4))
    assert projection.noise == pytest.approx(expected, rel=1e-3)


def test_cells_without_expression_are_cells():
    matrix = COUNTS.copy()
    matrix[:5] = 0
    projection = fit_projection(in_chunks(matrix), n_latent=3)
    assert np.isfinite(projection.project(matrix)).all()


def test_the_sign_is_that_of_the_first_loading_that_is_nearly_the_largest():
    """Which of two is larger by rounding depends on the matrix; one that is larger by more decides."""
    vectors = np.array([[1.0, 1.0, 0.0], [-1.00005, -1.001, 0.0]])
    np.testing.assert_array_equal(fix_signs(vectors), vectors * [1, -1, 1])


def test_subspace_iteration_goes_on_until_values_have_settled():
    """A spectrum that hardly falls off: one pass more or less is seen in the third digit."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(150, 400)).astype(np.float32)
    whole = fit_projection(in_chunks(matrix, 50), n_latent=5)
    for size in (120, 149):
        part = fit_projection(in_chunks(matrix, 50), n_latent=size, max_gram=10)
        np.testing.assert_allclose(part.singular_values[:60], whole.singular_values[:60], rtol=2e-5)


@pytest.mark.parametrize(
    ("spectrum", "k"),
    [([10, 9.5, 9, 0], 1), ([9, 1, 0.5, 0], 1), ([9, 8, 1, 0.5, 0], 2), ([3, 2], 2), ([4, 4, 4, 4], 4), ([], 1)],
)
def test_elbow_by_hand(spectrum, k):
    assert elbow(np.array(spectrum, dtype=float)) == k


def test_rounding_makes_no_negative_variance():
    """Sums of a gene that hardly varies, as rounding leaves them: its variance is zero, and it is no free gene."""
    sums = 4, np.array([4.0, 0.0]), np.array([[4.0 - 1e-9, 0.0], [0.0, 3.0]])
    spectrum = _eigen_gram(lambda _: sums, None, 2)
    np.testing.assert_array_equal(spectrum.variances, [0, 1])
    np.testing.assert_allclose(spectrum.singular_values, [np.sqrt(3), 0])


@pytest.mark.parametrize("max_gram", [MAX_GRAM_GENES, 10])
def test_the_bulk_is_the_mean_of_the_eigenvalues_beneath_weighted_by_themselves(max_gram):
    """Of all of them by the Gram matrix, although only the leading ones are computed; else of those computed."""
    matrix = np.random.default_rng(0).normal(size=(300, 150)).astype(np.float32)
    projection = fit_projection(in_chunks(matrix, 50), n_latent=5, max_gram=max_gram)
    eigenvalues = np.linalg.svd(standardize(matrix), compute_uv=False) ** 2
    beneath = eigenvalues[5:] if max_gram > 10 else eigenvalues[5:100]
    assert len(projection.singular_values) == 100
    assert projection.bulk == pytest.approx((beneath**2).sum() / beneath.sum(), rel=1e-4)
