"""Denoising a query."""

from __future__ import annotations

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
    assert query.uns["X_dice"]["genes"] == "2000/2000 genes found"


def test_noise_to_zero_returns_the_data(query, reference):
    dice.tl.denoise(query, reference, rho=0, noise=1e-3)
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
    dice.tl.denoise(shuffled, reference, chunk_size=33)
    np.testing.assert_allclose(shuffled.obsm["X_dice"], expected.obsm["X_dice"][order], atol=2e-3, rtol=1e-5)
    np.testing.assert_allclose(
        shuffled.obs["dice_uncertainty"], expected.obs["dice_uncertainty"].iloc[order], rtol=1e-4
    )


def renamed(query):
    query.var_names = [f"ENSG{i:011}" for i in range(query.n_vars)]
    return query


def broken(query):
    query.X[7, 0] = np.inf
    return query


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        (renamed, {}, "No gene is shared"),
        (broken, {}, r"1 cells hold NaN or infinite values, for example \['query_7'\]"),
        (lambda q: q, {"rho": -1}, "rho=-1"),
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
    with pytest.raises(dice.DiceError, match="reference is a int"):
        dice.tl.denoise(query, 3)
