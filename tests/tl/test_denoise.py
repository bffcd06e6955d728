"""Denoising a query."""

from __future__ import annotations

import inspect

import anndata as ad
import numpy as np
import pytest

import dice


def test_slots(query, reference):
    dice.tl.denoise(query, reference)
    for key in ("X_dice", "X_dice_pca"):
        assert query.obsm[key].shape == (400, 15)
        assert query.obsm[key].dtype == np.float32
    assert (query.obs["dice_uncertainty"] > 0).all()
    params = query.uns["X_dice"]["params"]
    assert params["noise"] == pytest.approx(1, abs=0.02)
    assert params["rho"] == pytest.approx(reference.uns["dice"]["latent_scale"] / 2)
    assert query.uns["X_dice"]["genes"]["text"] == "2000/2000 genes found"


def test_noise_to_zero_returns_the_data(query, reference):
    dice.tl.denoise(query, reference, rho=0, likelihood=dice.Gaussian(1e-3), shift=False)
    np.testing.assert_allclose(query.obsm["X_dice"], query.obsm["X_dice_pca"], atol=1e-2)


def test_noise_to_infinity_returns_the_prior_mean(query, reference):
    dice.tl.denoise(query, reference, rho=1e6)
    scale = reference.uns["dice"]["latent_scale"]
    assert np.abs(query.obsm["X_dice"]).max() < 0.2 * scale
    assert query.obsm["X_dice"].std(0).max() < 0.02 * scale


def test_reference_may_be_a_prior_a_file_or_the_query_itself(query, reference, tmp_path):
    prior = dice.Prior.from_anndata(reference)
    prior.save(tmp_path / "prior.h5ad")
    reference.write_h5ad(tmp_path / "reference.h5ad")
    expected = dice.tl.denoise(query, reference, copy=True).obsm["X_dice"]
    query.uns["dice"] = reference.uns["dice"]
    for source in (prior, tmp_path / "prior.h5ad", str(tmp_path / "reference.h5ad"), None):
        result = dice.tl.denoise(query, source, copy=True)
        np.testing.assert_array_equal(result.obsm["X_dice"], expected)


def test_chunks_and_order_do_not_matter(query, reference):
    expected = dice.tl.denoise(query, reference, copy=True)
    order = np.random.default_rng(0).permutation(query.n_obs)
    genes = np.random.default_rng(1).permutation(query.n_vars)
    shuffled = query[order][:, genes].copy()
    with dice.settings.using(chunk_size=33):
        dice.tl.denoise(shuffled, reference)
    np.testing.assert_allclose(shuffled.obsm["X_dice"], expected.obsm["X_dice"][order], atol=2e-3, rtol=1e-5)
    np.testing.assert_allclose(
        shuffled.obs["dice_uncertainty"], expected.obs["dice_uncertainty"].iloc[order], rtol=1e-4
    )


def test_samples_surround_the_mean_and_belong_to_the_cell(query, reference):
    dice.tl.denoise(query, reference, rho=30, n_samples=20, shift=False)
    samples = query.obsm["X_dice_samples"]
    assert samples.shape == (400, 20, 15)
    spread = samples.std(1).mean()
    error = np.abs(samples.mean(1) - query.obsm["X_dice"]).mean()
    assert error < 1.2 * spread / np.sqrt(20)
    np.testing.assert_allclose(query.obs["dice_uncertainty"], np.sqrt(samples.var(1, ddof=1).mean(1)), rtol=1e-4)
    part = query[100:130][::-1].copy()
    noise = query.uns["X_dice"]["params"]["noise"]
    with dice.settings.using(chunk_size=7):
        dice.tl.denoise(part, reference, rho=30, n_samples=20, likelihood=dice.Gaussian(noise), shift=False)
    np.testing.assert_allclose(part.obsm["X_dice_samples"], samples[100:130][::-1], atol=1e-2)


def test_other_seed_other_samples_same_mean(query, reference):
    one, two = (dice.tl.denoise(query, reference, n_samples=2, random_state=seed, copy=True).obsm for seed in (0, 1))
    # Not to the bit: the cells to find the shift by are taken in another order.
    np.testing.assert_allclose(one["X_dice"], two["X_dice"], atol=1e-3)
    assert np.abs(one["X_dice_samples"] - two["X_dice_samples"]).mean() > 1


def test_gibbs_agrees_with_direct(query, reference):
    """Algorithm 1 as printed has the mean of the direct path, up to Monte-Carlo error."""
    query = query[:100].copy()
    direct = dice.tl.denoise(query, reference, rho=30, copy=True)
    gibbs = dice.tl.denoise(query, reference, rho=30, method=dice.Gibbs(n_iterations=40), copy=True)
    assert direct.uns["X_dice"]["params"]["method"] == "direct"
    assert gibbs.uns["X_dice"]["params"]["method"] == "gibbs"
    moved = np.sqrt(((direct.obsm["X_dice"] - direct.obsm["X_dice_pca"]) ** 2).mean())
    apart = np.sqrt(((direct.obsm["X_dice"] - gibbs.obsm["X_dice"]) ** 2).mean())
    assert apart < 0.05 * moved
    ratio = gibbs.obs["dice_uncertainty"].mean() / direct.obs["dice_uncertainty"].mean()
    assert 0.9 < ratio < 1.1


@pytest.mark.parametrize(
    ("method", "chosen"), [("auto", "direct"), (dice.Gibbs(fast=True), "split")], ids=["direct", "chain"]
)
def test_missing_genes_are_unobserved_never_zero(query, reference, method, chosen):
    """Half of the genes gone: closer to the full answer than filling with zeros, and honest about it."""
    full = dice.tl.denoise(query, reference, rho=20, copy=True)
    keep = np.random.default_rng(0).random(query.n_vars) < 0.5
    with pytest.warns(dice.DiceWarning, match="genes found"):
        part = dice.tl.denoise(query[:, keep].copy(), reference, rho=20, method=method, copy=True)
    assert part.uns["X_dice"]["params"]["method"] == chosen
    zeros = query.copy()
    zeros.X[:, ~keep] = 0
    dice.tl.denoise(zeros, reference, rho=20, likelihood=dice.Gaussian(1.0))
    error = [np.sqrt(((a.obsm["X_dice"] - full.obsm["X_dice"]) ** 2).mean()) for a in (part, zeros)]
    assert error[0] < 0.1 * error[1]


def test_paper_settings_in_one_call(query):
    reference, _ = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset="paper-small", training=dice.Training(max_steps=30))
    query = query[:8].copy()
    dice.tl.denoise(query, reference, method=dice.Gibbs(n_chains=2, n_iterations=6, average="chains"), rho=(5, 0.5))
    params = query.uns["X_dice"]["params"]
    assert (params["n_iterations"], params["n_chains"]) == (6, 2)
    assert np.isfinite(query.obsm["X_dice"]).all()
    with pytest.warns(dice.DiceWarning, match="larger than the noise that the network was trained on"):
        dice.tl.denoise(query, reference, method=dice.Gibbs(n_iterations=1), rho=2000.0)


@pytest.mark.parametrize("likelihood", ["student_t", dice.StudentT(per_gene=True)], ids=str)
def test_heavy_tailed_likelihoods_run_and_agree_on_gaussian_noise(query, reference, likelihood):
    query = query[:40].copy()
    gaussian = dice.tl.denoise(query, reference, rho=30, copy=True)
    heavy = dice.tl.denoise(
        query, reference, rho=30, likelihood=likelihood, copy=True, method=dice.Gibbs(n_iterations=20)
    )
    moved = np.sqrt(((gaussian.obsm["X_dice"] - gaussian.obsm["X_dice_pca"]) ** 2).mean())
    apart = np.sqrt(((gaussian.obsm["X_dice"] - heavy.obsm["X_dice"]) ** 2).mean())
    assert apart < 0.1 * moved


def test_any_log_density_may_be_passed(query, reference):
    query = query[:20].copy()
    gaussian = dice.tl.denoise(query, reference, rho=30, copy=True)

    def log_density(residual):
        return -residual.square().sum(1) / 2

    general = dice.tl.denoise(
        query, reference, rho=30, likelihood=log_density, copy=True, method=dice.Gibbs(n_iterations=20)
    )
    assert 0.2 < general.uns["X_dice"]["params"]["acceptance"] <= 1
    moved = np.sqrt(((gaussian.obsm["X_dice"] - gaussian.obsm["X_dice_pca"]) ** 2).mean())
    apart = np.sqrt(((gaussian.obsm["X_dice"] - general.obsm["X_dice"]) ** 2).mean())
    assert apart < 0.15 * moved


def test_a_second_call_leaves_nothing_of_the_first(query, reference):
    dice.tl.denoise(query, reference, rho=30, n_samples=3)
    dice.tl.denoise(query, reference, rho=1, method=dice.Direct(uncertainty=False))
    assert "X_dice_samples" not in query.obsm
    assert "dice_uncertainty" not in query.obs


def test_a_backed_object_is_written_in_place_only(query, reference, tmp_path):
    query.write_h5ad(tmp_path / "query.h5ad")
    backed = ad.read_h5ad(tmp_path / "query.h5ad", backed="r")
    with pytest.raises(dice.DiceError, match="to_memory"):
        dice.tl.denoise(backed, reference, copy=True)
    dice.tl.denoise(backed, reference)
    np.testing.assert_allclose(
        backed.obsm["X_dice"], dice.tl.denoise(query, reference, copy=True).obsm["X_dice"], atol=1e-3
    )


def test_huge_rho_is_the_prior(query, reference):
    dice.tl.denoise(query, reference, rho=1e9)
    spread = reference.obsm["X_dice_pca"].std()
    assert query.obs["dice_uncertainty"].mean() == pytest.approx(spread, rel=0.15)
    assert query.obs["dice_uncertainty"].between(0.7 * spread, 1.3 * spread).all()


def test_uncertainty_of_chains_is_that_of_the_direct_path(query, reference):
    """One gene missing in a hundred changes hardly anything, whichever way the posterior is computed."""
    query = query[:100].copy()
    direct = dice.tl.denoise(query, reference, rho=30, copy=True).obs["dice_uncertainty"]
    split = dice.tl.denoise(query[:, 20:].copy(), reference, rho=30, copy=True).obs["dice_uncertainty"]
    once = dice.tl.denoise(query, reference, rho=30, method=dice.Gibbs(n_iterations=1), copy=True).obs[
        "dice_uncertainty"
    ]
    assert 0.93 < split.mean() / direct.mean() < 1.07
    assert 0.9 < once.mean() / direct.mean() < 1.1


def test_empty_query_and_single_cell(query, reference):
    nobody = query[:0].copy()
    dice.tl.denoise(nobody, reference, n_samples=2)
    assert nobody.obsm["X_dice"].shape == (0, 15)
    assert nobody.obsm["X_dice_samples"].shape == (0, 2, 15)
    single = query[:1].copy()
    noise = dice.tl.denoise(query, reference, copy=True, shift=False)
    dice.tl.denoise(single, reference, likelihood=dice.Gaussian(noise.uns["X_dice"]["params"]["noise"]))
    # One cell tells nearly nothing of a shift.
    assert np.abs(single.obsm["X_dice"] - noise.obsm["X_dice"][:1]).max() < 0.01 * noise.obs["dice_uncertainty"].iloc[0]


def test_a_cell_without_expression_gets_the_prior():
    cells = dice.datasets.pbmc68k()
    reference, query = cells[:500].copy(), cells[500:560].copy()
    dice.tl.train_prior(reference, n_latent=10, training=dice.Training(max_steps=50))
    query.X = query.X.toarray()
    query.X[5] = 0
    name = query.obs_names[5]
    with pytest.warns(dice.DiceWarning, match=rf"1 cells express no gene .*\['{name}'\]"):
        dice.tl.denoise(query, reference)
    assert list(query.obs_names[query.obs["dice_empty"]]) == [name]
    scale = reference.uns["dice"]["latent_scale"]
    assert np.abs(query.obsm["X_dice"][5]).max() < scale
    assert query.obs["dice_uncertainty"].iloc[5] > 0.8 * scale


def test_zeros_are_values_like_others_where_values_are_negative_too(query, reference):
    query.X[5] = 0
    dice.tl.denoise(query, reference)
    assert "dice_empty" not in query.obs


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, bool])
def test_any_number_type(query, reference, dtype):
    query = query[:20].copy()
    query.X = np.abs(query.X).astype(dtype)
    expected = query.copy()
    expected.X = query.X.astype(np.float32)
    for adata in (query, expected):
        dice.tl.denoise(adata, reference, check=False)
    np.testing.assert_allclose(query.obsm["X_dice"], expected.obsm["X_dice"], atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "magic"}, "`method` must be one of .*got 'magic'"),
        ({"check": np.ones(3)}, "`check` must be one of .*got array"),
        ({"prior_key": {}}, "`prior_key` must be a non-empty name .*got {}"),
        ({"likelihood": "cauchy"}, "`likelihood` must be one of .*got 'cauchy'"),
        ({"method": "direct", "rho": (5, 1)}, "pass method='auto'"),
        ({"likelihood": lambda: dice.Gaussian("much")}, "`noise` must be .*got 'much'"),
        ({"likelihood": lambda: dice.Gaussian(-1.0)}, "`noise` must be .*got -1.0"),
        ({"n_samples": -1}, "`n_samples` must be .*got -1"),
        ({"n_samples": True}, "`n_samples` must be .*got True"),
        ({"likelihood": lambda: dice.StudentT(df=True)}, "`df` must be .*got True"),
        ({"method": lambda: dice.Gibbs(average="all")}, "`average` must be one of .*got 'all'"),
        ({"method": lambda: dice.Gibbs(schedule="wild")}, "`schedule` must be one of .*got 'wild'"),
        ({"method": lambda: dice.Gibbs(burn_in=-3)}, "`burn_in` must be .*got -3"),
        ({"method": lambda: dice.Gibbs(fast=True), "rho": (5, 1)}, "pass dice.Gibbs()"),
        ({"rho": (5, -1)}, r"`rho` must be .*got \(5, -1\)"),
        ({"rho": "much"}, "`rho` must be .*got 'much'"),
        ({"likelihood": lambda: dice.StudentT(df=0.5)}, "`df` must be .*got 0.5"),
        ({"random_state": "none"}, "`random_state` must be .*got 'none'"),
        ({"likelihood": lambda: dice.Gaussian(None)}, "`noise` must be .*got None"),
        ({"key_added": None}, "`key_added` must be .*got None"),
        ({"likelihood": lambda residual: residual, "rho": 30}, r"one log density for each cell, shape \(cells,\)"),
    ],
)
def test_bad_arguments(query, reference, arguments, sentence):
    with pytest.raises(dice.DiceError, match=sentence):
        # Settings objects check themselves; a function without arguments makes one.
        dice.tl.denoise(query, reference, **{name: made(value) for name, value in arguments.items()})
    assert "X_dice" not in query.obsm


def made(value):
    return value() if callable(value) and not inspect.signature(value).parameters else value


@pytest.mark.parametrize("size", [3 + 0j, -1])
def test_bad_chunk_size(query, reference, size):
    with dice.settings.using(chunk_size=size), pytest.raises(dice.DiceError, match="`chunk_size` must be"):
        dice.tl.denoise(query, reference)


def renamed(query):
    query.var_names = [f"ENSG{i:011}" for i in range(query.n_vars)]
    return query


def broken(query):
    query.X[7, 0] = np.inf
    return query


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        (renamed, {}, "No genes are shared"),
        (broken, {}, r"1 cells hold NaN or infinite values, for example \['query_7'\]"),
        (lambda q: q, {"rho": -1}, "`rho` must be .*got -1"),
        (lambda q: q, {"layer": "nothing"}, "There is no layer 'nothing'"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(query, reference, change, arguments, sentence):
    query = change(query)
    before = (set(query.obsm), set(query.obs), set(query.uns))
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        dice.tl.denoise(query, reference, **arguments)
    assert "\n" not in str(caught.value)
    assert (set(query.obsm), set(query.obs), set(query.uns)) == before


def test_a_missing_prior_is_explained(query, reference, tmp_path):
    with pytest.raises(KeyError, match=r"anndata.concat drops .uns"):
        dice.tl.denoise(query)
    joined = ad.concat([reference, reference], index_unique="-")
    with pytest.raises(dice.DiceError, match=r"anndata.concat drops .uns"):
        dice.tl.denoise(query, joined)
    with pytest.raises(dice.DiceError, match="There is no file"):
        dice.tl.denoise(query, tmp_path / "nothing.h5ad")
    with pytest.raises(dice.DiceError, match=r"`reference` must be .*got 3"):
        dice.tl.denoise(query, 3)


def test_noise_is_measured_where_values_are_counts(counted_pair):
    reference, query = counted_pair[0], counted_pair[1].copy()
    dice.tl.denoise(query, reference, n_samples=200)
    record, prior = query.uns["X_dice"], dice.Prior.from_anndata(reference)
    assert record["params"]["method"] == "direct"
    assert record["params"]["measured"]
    assert record["params"]["rho"] == 0
    assert record["call"]["likelihood"] == "auto"
    # Samples scatter around the mean as the uncertainty says.
    spread = np.sqrt(np.square(query.obsm["X_dice_samples"] - query.obsm["X_dice"][:, None]).mean((1, 2)))
    np.testing.assert_allclose(spread, query.obs["dice_uncertainty"], rtol=0.1)
    latents = prior.mean(query.obsm["X_dice_pca"], np.array([depth(cell) for cell in query.X.toarray()]))
    np.testing.assert_allclose(query.obsm["X_dice"], latents, atol=1e-3)


def depth(cell):
    return -np.log(np.expm1(cell[cell > 0]).min())


@pytest.mark.parametrize(
    "arguments",
    [
        {"likelihood": "gaussian"},
        {"likelihood": dice.Gaussian("per_gene")},
        {"method": dice.Gibbs(n_iterations=5), "rho": 1.0},
    ],
    ids=str,
)
def test_assumed_noise_on_request(counted_pair, arguments):
    query = counted_pair[1].copy()
    dice.tl.denoise(query, counted_pair[0], **arguments)
    assert not query.uns["X_dice"]["params"]["measured"]


def test_values_that_are_no_counts_have_assumed_noise(counted_pair):
    query = counted_pair[1].copy()
    query.X = query.X.multiply(np.linspace(0.9, 1.1, query.n_vars)).tocsr().astype(np.float32)
    with pytest.warns(dice.DiceWarning, match="its noise is assumed, not measured"):
        dice.tl.denoise(query, counted_pair[0], check=False)
    assert query.uns["X_dice"]["params"]["method"] == "direct"
    assert query.uns["X_dice"]["params"]["rho"] > 0


@pytest.mark.parametrize("kind", ["dense", "csc", "dask"])
def test_measured_noise_whatever_the_matrix_and_the_order(counted_pair, kind):
    reference, query = counted_pair[0], counted_pair[1].copy()
    dice.tl.denoise(query, reference, n_samples=2)
    order = np.random.default_rng(0).permutation(query.n_obs)
    other = counted_pair[1][order].copy()
    if kind == "dense":
        other.X = other.X.toarray()
    elif kind == "csc":
        other.X = other.X.tocsc()
    else:
        da = pytest.importorskip("dask.array")
        other.X = da.from_array(other.X.toarray(), chunks=(37, -1))
    with dice.settings.using(chunk_size=23):
        dice.tl.denoise(other, reference, n_samples=2)
    for key in ("X_dice", "X_dice_samples"):
        np.testing.assert_allclose(other.obsm[key], query.obsm[key][order], atol=1e-3)
    np.testing.assert_allclose(other.obs["dice_uncertainty"], query.obs["dice_uncertainty"].iloc[order], atol=1e-3)


def test_missing_genes_are_filled_in_at_once(counted_pair):
    reference, query = counted_pair[0], counted_pair[1].copy()
    dice.tl.denoise(query, reference)
    part = query[:, np.random.default_rng(0).random(query.n_vars) < 0.6].copy()
    with pytest.warns(dice.DiceWarning, match="genes found"):
        dice.tl.denoise(part, reference)
    assert part.uns["X_dice"]["params"]["measured"]
    wanted, found = query.obsm["X_dice"], part.obsm["X_dice"]
    assert np.sqrt(np.square(found - wanted).mean()) < 0.6 * wanted.std()


def test_the_reference_itself_is_read_without_its_own_influence(counted_pair):
    """Its loadings fit the noise of its own cells: read naively, they scatter more than cells that PCA has not seen."""
    reference = counted_pair[0].copy()
    own = (reference.obs["dice_split"] != "calibration").to_numpy()
    dice.tl.denoise(reference)
    naive = reference.copy()
    del naive.obs["dice_split"]
    dice.tl.denoise(naive, counted_pair[0])
    moved = np.abs(reference.obsm["X_dice"] - naive.obsm["X_dice"]).mean(1)
    assert moved[own].min() > 0
    np.testing.assert_allclose(moved[~own], 0, atol=1e-4)
