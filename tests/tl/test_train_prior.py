"""Learning a prior: what is written, what it is worth, and what is refused."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
import torch
from oracle import exact_mixture
from scipy import sparse

import dice


def small(n=120, d=40, seed=0):
    """Log-normalised expression of two easily told cell types."""
    rng = np.random.default_rng(seed)
    types = np.repeat([0, 1], n // 2)
    rates = np.exp(rng.normal(size=(2, d)))[types]
    expression = np.log1p(rng.poisson(rates) / rates.sum(1, keepdims=True) * 100)
    adata = ad.AnnData(sparse.csr_matrix(expression.astype(np.float32)))
    adata.obs["cell_type"] = np.array(["a", "b"])[types]
    return adata


@pytest.mark.parametrize(("rho", "bound"), [(20, 0.35), (30, 0.30), (60, 0.20)])
def test_posterior_mean_is_close_to_the_exact_one(reference, query, rho, bound):
    """RMSE to the exact posterior mean, relative to the distance that there is to go."""
    dice.tl.denoise(query, reference, rho=rho)
    exact = exact_mixture(reference, dice.Prior.from_anndata(reference))
    y = torch.as_tensor(query.obsm["X_dice_pca"]).double()
    s = torch.as_tensor(np.hypot(query.uns["X_dice"]["params"]["noise"], rho))
    target = exact(y, s)
    error = (torch.as_tensor(query.obsm["X_dice"]) - target).square().mean().sqrt()
    assert error / (y - target).square().mean().sqrt() < bound


def test_slots(reference):
    assert reference.varm["dice_loadings"].shape == (2000, 15)
    assert reference.obsm["X_dice_pca"].shape == (1600, 15)
    assert reference.obsm["X_dice_pca"].dtype == np.float32
    stored = reference.uns["dice"]
    assert stored["format"] == 1
    assert len(stored["sha256"]) == 64
    prior = dice.Prior.from_anndata(reference)
    np.testing.assert_allclose(prior.projection.project(reference.X), reference.obsm["X_dice_pca"], atol=1e-3)
    assert prior.noise == pytest.approx(1, abs=0.02)
    variances = reference.obsm["X_dice_pca"].var(0)
    assert prior.latent_scale == pytest.approx(np.sqrt(variances.mean()), rel=1e-5)


def test_copy_leaves_the_input_alone():
    adata = small()
    result = dice.tl.train_prior(adata, n_latent=3, max_steps=5, copy=True)
    assert "dice" in result.uns
    assert not any((adata.uns, adata.varm, adata.obsm))


def test_same_seed_same_prior_and_global_random_state_untouched():
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    digests = []
    for seed in (0, 0, 1):
        adata = small()
        dice.tl.train_prior(adata, n_latent=3, max_steps=30, random_state=seed)
        digests.append(adata.uns["dice"]["sha256"])
    assert digests[0] == digests[1] != digests[2]
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_highly_variable_genes_are_the_default_mask():
    adata = small()
    adata.var["highly_variable"] = np.arange(40) < 25
    dice.tl.train_prior(adata, n_latent=3, max_steps=5)
    assert list(adata.uns["dice"]["genes"]) == list(adata.var_names[:25])
    assert not adata.varm["dice_loadings"][25:].any()


def test_labels_sharpen_the_prior():
    """Same-class mixup shrinks the variance within classes that the prior believes in."""
    plain, sharp = small(400), small(400)
    dice.tl.train_prior(plain, n_latent=3, max_steps=400)
    dice.tl.train_prior(sharp, n_latent=3, max_steps=400, labels_key="cell_type")
    for adata in (plain, sharp):
        dice.tl.denoise(adata, rho=3)
    within = [
        sum(a.obsm["X_dice"][(a.obs["cell_type"] == t).to_numpy()].var(0).sum() for t in "ab") for a in (plain, sharp)
    ]
    assert within[1] < 0.8 * within[0]


@pytest.mark.parametrize("preset", ["gmm", "paper-small"])
def test_other_presets_denoise_too(preset, query):
    reference, _ = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset=preset, max_steps=10)
    dice.tl.denoise(query, reference, rho=20)
    assert np.isfinite(query.obsm["X_dice"]).all()


def counts():
    adata = small()
    adata.X = sparse.csr_matrix(np.random.default_rng(0).poisson(5, adata.shape).astype(np.float32))
    return adata


def with_nan():
    adata = small()
    adata.X = adata.X.toarray()
    adata.X[3, 4] = np.nan
    return adata


def with_duplicates():
    adata = small()
    adata.var_names = ["gene"] * 40
    return adata


def one_class():
    adata = small()
    adata.obs["cell_type"] = "a"
    return adata


@pytest.mark.parametrize(
    ("make", "arguments", "sentence"),
    [
        (counts, {}, "sc.pp.normalize_total"),
        (with_nan, {}, r"1 cells hold NaN or infinite values, for example \['3'\]"),
        (with_duplicates, {}, r"var_names_make_unique"),
        (one_class, {"labels_key": "cell_type"}, "at least two"),
        (small, {"labels_key": "nothing"}, "no column 'nothing' in adata.obs"),
        (small, {"n_latent": 40}, "pass a number from 1 to 39"),
        (small, {"n_latent": 0}, "pass a number from 1 to 39"),
        (small, {"preset": "huge"}, "There is no preset 'huge'"),
        (small, {"layer": "nothing"}, "There is no layer 'nothing'"),
        (small, {"mask_var": "nothing"}, "There is no column 'nothing' in adata.var"),
        (small, {"validation_fraction": 0.9}, "not between 0 and 0.5"),
        (small, {"device": "toaster"}, "pass device='cpu'"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(make, arguments, sentence):
    adata = make()
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        dice.tl.train_prior(adata, **{"n_latent": 3, "max_steps": 5} | arguments)
    assert "\n" not in str(caught.value)
    assert not any((adata.uns, adata.varm, adata.obsm))
