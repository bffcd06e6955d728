"""What the values of a matrix are, before a query is made of it."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

import dice
from dice._data.values import expression_layer, target_sum_of
from dice._labels.summary import median_depth

COUNTS = np.random.default_rng(0).poisson(3, size=(80, 40)) + (np.arange(40) == 0)


def logged(target_sum):
    return ad.AnnData(np.log1p(COUNTS / COUNTS.sum(1, keepdims=True) * target_sum).astype(np.float32))


def test_target_sums():
    assert target_sum_of(ad.AnnData(COUNTS.astype(np.float32)), None, "adata") == 1e4
    assert target_sum_of(logged(5000), None, "adata") == pytest.approx(5000, rel=1e-4)
    assert target_sum_of(ad.AnnData(np.empty((0, 40), np.float32)), None, "adata") == 1e4
    uneven = logged(5000)
    uneven.X *= np.linspace(0.5, 1, 80, dtype=np.float32)[:, None]
    assert target_sum_of(uneven, None, "adata") == 1e4


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_raw_counts_are_logged_into_a_layer(kind):
    adata = ad.AnnData(kind(COUNTS.astype(np.float32)))
    key = expression_layer(adata, None, 1e4, "adata")
    values = adata.layers[key]
    values = values.toarray() if sparse.issparse(values) else values
    np.testing.assert_allclose(values, logged(1e4).X, rtol=1e-4)
    assert expression_layer(adata, key, 1e4, "adata") == key
    assert expression_layer(logged(1e4), None, 1e4, "adata") is None


def test_depth_is_the_median_of_the_totals():
    exact = float(np.median(COUNTS.sum(1)))
    assert median_depth(ad.AnnData(COUNTS.astype(np.float32)), None) == exact
    assert median_depth(logged(5000), None) == exact
    assert median_depth(ad.AnnData(np.empty((0, 40), np.float32)), None) is None


@pytest.mark.parametrize(("n_strays", "known"), [(0, True), (8, True), (9, False), (80, False)])
def test_one_in_ten_cells_may_be_no_counts(n_strays, known):
    adata = logged(5000)
    adata.X[:n_strays] = np.random.default_rng(1).uniform(1, 2, size=(n_strays, 40))
    found = median_depth(adata, None)
    assert found == (float(np.median(COUNTS[n_strays:].sum(1))) if known else None)


def test_a_layer_of_the_user_is_not_overwritten():
    """`annotate` replaced `layers["dice_lognorm"]`, whatever was in it."""
    adata = ad.AnnData(COUNTS.astype(np.float32))
    adata.layers["dice_lognorm"] = mine = logged(1e4).X + 0.5
    with pytest.raises(dice.DiceError, match=r"does not hold log-normalised .*: rename the layer"):
        expression_layer(adata, None, 1e4, "adata")
    with pytest.raises(dice.DiceError, match=r"layers\['dice_lognorm'\] does not hold log-normalised"):
        dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=5))
    assert adata.layers["dice_lognorm"] is mine
    assert "dice" not in adata.uns
    # What an earlier call has made can be made again, for any sum.
    adata.layers["dice_lognorm"] = logged(500).X
    assert expression_layer(adata, None, 1e4, "adata") == "dice_lognorm"
    np.testing.assert_allclose(adata.layers["dice_lognorm"], logged(1e4).X, rtol=1e-4)
