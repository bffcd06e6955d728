"""Draws are checked against the paper's constants; tolerances are multiples of standard errors."""

from __future__ import annotations

import doctest
import random

import anndata as ad
import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA

from dice import datasets, metrics
from dice._errors import InputError
from dice.datasets import _synthetic

SETUPS = (1, 2, 3, 4)
WIDE = 4.5  # standard errors; a normal deviate exceeds them once in 150,000 draws


@pytest.fixture(scope="module")
def pairs() -> dict[int, tuple[ad.AnnData, ad.AnnData]]:
    return {setup: datasets.synthetic(setup) for setup in SETUPS}


def residual(adata: ad.AnnData) -> np.ndarray:
    return adata.X - adata.obsm["U_true"] @ adata.varm["V_true"].T


def assert_variance(values: np.ndarray, expected: float) -> None:
    """Check the second moment around zero of independent normal values."""
    assert abs((values**2).mean() - expected) < WIDE * expected * np.sqrt(2 / values.size)


def assert_cluster(adata: ad.AnnData, name: str, mean: float, variance: float) -> None:
    latent = adata.obsm["U_true"][adata.obs["cell_type"] == name]
    assert np.abs(latent.mean(axis=0) - mean).max() < WIDE * np.sqrt(variance / len(latent))
    assert_variance(latent - mean, variance)


def test_shape_of_the_result(pairs) -> None:
    for setup, (reference, query) in pairs.items():
        assert reference.shape == (1600, 2000)
        assert query.shape == (400, 2000)
        assert reference.obs_names[0] == "ref_0"
        assert query.obs_names[-1] == "query_399"
        assert reference.var_names.equals(query.var_names)
        for part in (reference, query):
            assert part.X.dtype == np.float32
            assert part.obs["cell_type"].cat.categories.tolist() == ["Cluster 1", "Cluster 2"]
            assert part.obsm["U_true"].shape == (part.n_obs, 15)
            assert part.varm["V_true"].shape == (2000, 15)
            assert part.uns["dice_synthetic"]["setup"] == setup
            share = (part.obs["cell_type"] == "Cluster 1").mean()
            assert abs(share - 0.5) < WIDE * 0.5 / np.sqrt(part.n_obs)


def test_reference_is_one_for_all_setups(pairs) -> None:
    reference = pairs[1][0]
    assert_variance(reference.varm["V_true"], 1.0)
    assert_cluster(reference, "Cluster 1", 1.0, 1.3)
    assert_cluster(reference, "Cluster 2", 0.0, 1.5)
    assert_variance(residual(reference), 1.0)
    for setup in SETUPS:
        assert np.array_equal(pairs[setup][0].X, reference.X)
        assert np.array_equal(pairs[setup][1].varm["V_true"], reference.varm["V_true"])


@pytest.mark.parametrize("setup", [1, 2, 3])
def test_latents_of_matched_queries(pairs, setup: int) -> None:
    query = pairs[setup][1]
    assert_cluster(query, "Cluster 1", 1.0, 1.3)
    assert_cluster(query, "Cluster 2", 0.0, 1.5)


@pytest.mark.parametrize(("setup", "variance"), [(1, 1.0), (2, 10.0), (4, 10.0)])
def test_gaussian_noise(pairs, setup: int, variance: float) -> None:
    query = pairs[setup][1]
    assert_variance(residual(query), variance)
    assert np.allclose(query.obs["noise_true"], np.sqrt(variance))


def test_t_noise_has_one_scale_per_cell(pairs) -> None:
    query = pairs[3][1]
    scale = query.obs["noise_true"].to_numpy()
    noise = residual(query)
    assert_variance(noise / scale[:, None], 1.0)
    measured = noise.std(axis=1)
    assert np.abs(measured / scale - 1).max() < WIDE / np.sqrt(2 * 2000)
    assert stats.kstest(4 / scale**2, stats.chi2(4).cdf).pvalue > 0.01


def test_latents_of_setup_4(pairs) -> None:
    query = pairs[4][1]
    assert_cluster(query, "Cluster 1", 1.0, 1.5)
    heavy = query.obsm["U_true"][query.obs["cell_type"] == "Cluster 2"]
    # The squared length of a multivariate t vector, per dimension and scale, follows F(k, nu).
    assert stats.kstest((heavy**2).mean(axis=1) / 1.3, stats.f(15, 4).cdf).pvalue > 0.01
    # All dimensions of a cell share one chi-square; each is t with 4 degrees of freedom.
    assert stats.kstest(heavy[:, 0] / np.sqrt(1.3), stats.t(4).cdf).pvalue > 0.01


def test_pca_scores_as_in_the_paper(pairs) -> None:
    reference = pairs[1][0]
    pca = PCA(15, svd_solver="randomized", random_state=0).fit(reference.X)
    paper = {1: (0.25, 1.27), 2: (0.24, 1.27), 3: (0.22, 1.32), 4: (0.22, 1.35)}
    for setup, (silhouette, clisi) in paper.items():
        query = pairs[setup][1]
        embedding, labels = pca.transform(query.X), query.obs["cell_type"]
        # Between seeds these vary by about 0.015 and 0.02.
        assert metrics.silhouette(embedding, labels) == pytest.approx(silhouette, abs=0.045)
        assert metrics.clisi(embedding, labels) == pytest.approx(clisi, abs=0.08)


def test_seeds(pairs) -> None:
    again = datasets.synthetic(4)
    other = datasets.synthetic(4, random_state=1)
    for part in (0, 1):
        assert np.array_equal(pairs[4][part].X, again[part].X)
        assert not np.array_equal(pairs[4][part].X, other[part].X)


def test_query_does_not_depend_on_the_reference_size() -> None:
    _, query = datasets.synthetic(3, n_reference=10, n_query=20)
    _, other = datasets.synthetic(3, n_reference=30, n_query=20)
    assert np.array_equal(query.X, other.X)


def test_a_generator_gives_the_seed() -> None:
    one, other = (datasets.mismatch(random_state=np.random.default_rng(1), n_reference=10, n_query=5) for _ in range(2))
    np.testing.assert_array_equal(one[0].X, other[0].X)
    again, _ = datasets.mismatch(random_state=one[0].uns["dice_synthetic"]["random_state"], n_reference=10, n_query=5)
    np.testing.assert_array_equal(one[0].X, again.X)


def test_global_random_state_is_untouched() -> None:
    state, python_state = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    datasets.synthetic(4, n_reference=10, n_query=10)
    datasets.mismatch("more", n_reference=10, n_query=10)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    assert random.getstate() == python_state


def test_constants_survive_a_file(tmp_path) -> None:
    _, query = datasets.synthetic(4, n_reference=10, n_query=10)
    query.write_h5ad(tmp_path / "query.h5ad")
    stored = ad.read_h5ad(tmp_path / "query.h5ad").uns["dice_synthetic"]
    assert list(stored["clusters"]) == ["Cluster 1", "Cluster 2"]
    assert np.array_equal(stored["weights"], [0.5, 0.5])
    assert np.array_equal(stored["means"], np.repeat([[1.0], [0.0]], 15, axis=1))
    assert np.array_equal(stored["variances"], [1.5, 1.3])
    assert np.array_equal(stored["dfs"], [np.inf, 4])
    assert stored["noise_variance"] == 10
    assert stored["noise_df"] == np.inf


def test_results_share_no_memory() -> None:
    reference, query = datasets.synthetic(1, n_reference=5, n_query=5)
    reference.varm["V_true"][:] = 0
    reference.uns["dice_synthetic"]["means"][:] = 7
    assert query.varm["V_true"].any()
    assert query.uns["dice_synthetic"]["means"].max() == 1
    assert datasets.synthetic(1, n_reference=5, n_query=5)[0].uns["dice_synthetic"]["means"].max() == 1


@pytest.mark.parametrize("kind", ["fewer", "more"])
def test_mismatch(kind: str) -> None:
    reference, query = datasets.mismatch(kind)
    assert reference.shape == (8000, 200)
    assert query.shape == (2000, 200)
    assert_variance(residual(reference), 0.5)
    assert_variance(residual(query), 1.0)
    constants = reference.uns["dice_synthetic"]
    assert constants["setup"] == kind
    labels = reference.obs["cell_type"]
    assert labels.cat.categories.tolist() == [f"Cluster {i}" for i in range(1, 6)]
    shares = labels.value_counts(normalize=True)
    assert np.abs(shares - 0.2).max() < WIDE * np.sqrt(0.2 * 0.8 / 8000)
    for code, centre in enumerate(constants["means"]):
        latent = reference.obsm["U_true"][labels.cat.codes == code]
        assert np.abs(latent.mean(axis=0) - centre).max() < WIDE * np.sqrt(0.3 / len(latent))
        assert_variance(latent - centre, 0.3)


def test_mismatched_clusters() -> None:
    reference, fewer = datasets.mismatch("fewer", n_reference=50, n_query=20)
    same_reference, more = datasets.mismatch("more", n_reference=50, n_query=20)
    assert np.array_equal(reference.X, same_reference.X)
    assert fewer.obs["cell_type"].unique().tolist() == ["Cluster 1"]
    assert more.obs["cell_type"].unique().tolist() == ["Cluster 6"]
    centres = reference.uns["dice_synthetic"]["means"]
    assert np.array_equal(fewer.uns["dice_synthetic"]["means"], centres[:1])
    gaps = np.linalg.norm(centres - more.uns["dice_synthetic"]["means"], axis=1)
    assert gaps.min() > 6 * np.sqrt(0.3)


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (lambda: datasets.synthetic(5), "must be 1, 2, 3 or 4"),
        (lambda: datasets.synthetic(1, n_query=0), "must be at least 1"),
        (lambda: datasets.mismatch("other"), r"must be one of \['fewer', 'more'\]"),
        (lambda: datasets.mismatch("more", n_reference=-1), "must be at least 1"),
    ],
)
def test_bad_input_names_the_fix(call, fix: str) -> None:
    with pytest.raises(InputError, match=fix):
        call()


def test_examples_run() -> None:
    assert doctest.testmod(_synthetic).failed == 0
