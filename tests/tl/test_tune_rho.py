"""Choosing rho by what the embedding has not seen."""

from __future__ import annotations

import time

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

import dice
from dice._query import rho


def counts_pair(n=700, d=80, depth=150.0, seed=0):
    """Reference and query of four types with Poisson counts; the query is shallower."""
    rng = np.random.default_rng(seed)
    rates = rng.gamma(1.0, 1.0, size=(4, d))
    rates /= rates.sum(1, keepdims=True)
    parts = []
    for size, total in ((n, depth), (200, depth / 3)):
        codes = rng.integers(4, size=size)
        counts = rng.poisson(rates[codes] * total)
        adata = ad.AnnData(sparse.csr_matrix(np.log1p(counts / counts.sum(1, keepdims=True) * 100).astype(np.float32)))
        adata.layers["counts"] = sparse.csr_matrix(counts.astype(np.float32))
        adata.obs["cell_type"] = np.array(list("abcd"))[codes]
        adata.obs_names = [f"{size}-{i}" for i in range(size)]
        parts.append(adata)
    return parts


@pytest.fixture(scope="module")
def pair():
    reference, query = counts_pair()
    dice.tl.train_prior(reference, n_latent=6, preset="gmm")
    return reference, query


@pytest.mark.parametrize("criterion", ["genes", "counts"])
def test_every_criterion_leaves_a_curve(pair, criterion, tmp_path):
    reference, query = pair[0], pair[1].copy()
    dice.tl.tune_rho(query, reference, criterion=criterion)
    curve = query.uns["dice_rho"]
    assert curve["criterion"] == criterion
    assert curve["grid"].shape == curve["loss"].shape == curve["error"].shape == (8,)
    assert np.isfinite(curve["loss"]).all()
    assert (curve["error"] > 0).all()
    assert curve["rho"] == curve["grid"][curve["loss"].argmin()]
    query.write_h5ad(tmp_path / "query.h5ad")
    back = ad.read_h5ad(tmp_path / "query.h5ad").uns["dice_rho"]
    np.testing.assert_array_equal(back["loss"], curve["loss"])


@pytest.mark.parametrize("criterion", ["genes", "counts"])
def test_far_too_much_pull_is_never_best(pair, criterion):
    """Cells of four types: at a huge rho all of them are the mean cell, which predicts nothing."""
    reference, query = pair[0], pair[1].copy()
    scale = dice.Prior.from_anndata(reference).latent_scale
    dice.tl.tune_rho(query, reference, criterion=criterion, grid=[0.0, 0.3 * scale, 8 * scale])
    loss = query.uns["dice_rho"]["loss"]
    assert loss[2] > loss[:2].min() + 3 * query.uns["dice_rho"]["error"].max()


def test_auto_is_quick_and_blind_to_labels_and_order(pair):
    reference, query = pair[0], pair[1].copy()
    start = time.perf_counter()
    dice.tl.tune_rho(query, reference)
    assert time.perf_counter() - start < 20
    other = pair[1][::-1].copy()
    other.obs["cell_type"] = "x"
    dice.tl.tune_rho(other, reference)
    np.testing.assert_allclose(other.uns["dice_rho"]["loss"], query.uns["dice_rho"]["loss"], rtol=1e-4)


def test_genes_that_the_query_lacks(pair):
    query = pair[1][:, 15:].copy()
    dice.tl.tune_rho(query, pair[0])
    assert np.isfinite(query.uns["dice_rho"]["rho"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"criterion": "ari"}, "`criterion` must be one of .*got 'ari'"),
        ({"grid": []}, r"`grid` must be .*got \[\]"),
        ({"grid": [1, -1]}, "must be a sequence of numbers"),
        ({"grid": "a"}, "`grid` must be .*got 'a'"),
        ({"key_added": ""}, "`key_added` must be .*got ''"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(pair, arguments, sentence):
    query = pair[1].copy()
    query.layers["logged"] = query.X
    query.layers["wrong"] = query.layers["counts"][::-1].copy()
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        dice.tl.tune_rho(query, pair[0], **arguments)
    assert "\n" not in str(caught.value)
    assert not query.uns


def test_two_cells_are_the_fewest_to_tune_on(pair):
    for n in (0, 1):
        with pytest.raises(dice.DiceError, match=f"rho cannot be tuned on {n} cells"):
            dice.tl.tune_rho(pair[1][:n].copy(), pair[0], check=False)
    two = pair[1][:2].copy()
    dice.tl.tune_rho(two, pair[0], check=False)
    assert two.uns["dice_rho"]["n_cells"] == 2


def test_the_default_grid_begins_without_a_pull(pair):
    query = pair[1].copy()
    dice.tl.tune_rho(query, pair[0])
    scale = dice.Prior.from_anndata(pair[0]).latent_scale
    np.testing.assert_allclose(query.uns["dice_rho"]["grid"] / scale, [0, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5], rtol=1e-6)


@pytest.mark.parametrize("n", [3, 1])
def test_the_error_is_that_of_the_mean_over_cells(pair, monkeypatch, n):
    losses, query = np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]])[:n], pair[1].copy()
    monkeypatch.setattr(rho, "by_genes", lambda *_: losses)
    dice.tl.tune_rho(query, pair[0], criterion="genes", grid=[0.1, 0.2])
    curve = query.uns["dice_rho"]
    np.testing.assert_allclose(curve["error"], losses.std(0, ddof=1) / np.sqrt(3) if n > 1 else 0)
    assert (curve["rho"], curve["n_cells"]) == (0.1, n)


def test_cells_without_expression_do_not_lower_the_noise(pair, monkeypatch):
    """Their residual is what zeros leave of the mean cell, which says nothing of noise."""
    from dice._query import rho

    seen = []
    real = rho.by_genes
    monkeypatch.setattr(rho, "by_genes", lambda *a: seen.append(a[4]) or real(*a))
    query = pair[1][:60].copy()
    dice.tl.tune_rho(query, pair[0])
    empty = query.copy()
    empty.obs_names = [f"empty-{name}" for name in empty.obs_names]
    empty.X.data[:] = 0
    both = ad.concat([query, empty])
    dice.tl.tune_rho(both, pair[0], check=False)
    assert seen[1] == pytest.approx(seen[0], rel=1e-5)
    with pytest.raises(dice.DiceError, match="no cell expresses a gene of the prior"):
        dice.tl.tune_rho(empty, pair[0], check=False)


def test_a_cell_without_counts_says_nothing(pair):
    reference, query = pair[0], pair[1].copy()
    for matrix in (query.X, query.layers["counts"]):
        matrix.data[matrix.indptr[3] : matrix.indptr[4]] = 0
    dice.tl.tune_rho(query, reference, criterion="counts", check=False)
    without = pair[1][np.arange(query.n_obs) != 3].copy()
    dice.tl.tune_rho(without, reference, criterion="counts")
    assert np.isfinite(query.uns["dice_rho"]["loss"]).all()
    assert query.uns["dice_rho"]["n_cells"] == without.n_obs
    np.testing.assert_allclose(query.uns["dice_rho"]["loss"], without.uns["dice_rho"]["loss"], rtol=0.05)


def test_values_without_counts_have_no_held_out_counts(pair):
    query = pair[1].copy()
    query.X = query.X.copy()
    query.X.data *= np.random.default_rng(0).uniform(0.98, 1.02, query.X.nnz).astype(query.X.dtype)
    with pytest.raises(dice.DiceError, match=r"needs log-normalised counts: set adata.X to the raw counts"):
        dice.tl.tune_rho(query, pair[0], criterion="counts")


def test_the_key_of_the_prior_is_not_taken(pair):
    reference, query = pair[0].copy(), pair[1].copy()
    query.uns["dice"] = reference.uns["dice"]
    with pytest.raises(dice.DiceError, match="key_added='dice' is taken"):
        dice.tl.tune_rho(query, key_added="dice")


def test_the_best_rho_is_passed_on(pair):
    reference, query = pair[0], pair[1].copy()
    dice.tl.tune_rho(query, reference)
    dice.tl.denoise(query, reference, rho=query.uns["dice_rho"]["rho"])
    record = query.uns["X_dice"]
    assert record["params"]["rho"] == record["call"]["rho"] == query.uns["dice_rho"]["rho"]
