"""Raw counts in ``X``: every verb that takes expression log-normalises them into a layer, and finds it again."""

from __future__ import annotations

import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

import dice

TRAINING = dice.Training(max_steps=20, calibration_fraction=0.3)


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    codes = rng.integers(4, size=700)
    counts = sparse.csr_matrix(rng.poisson(3 * rng.gamma(0.3, size=(4, 200))[codes]).astype(np.float32))
    obs = pd.DataFrame({"cell_type": codes.astype(str)}, index=[f"cell {i}" for i in range(700)])
    cells = ad.AnnData(counts, obs=obs)
    return cells[:500].copy(), cells[500:].copy()


def logged(cells):
    cells = cells.copy()
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    return cells


def test_results_are_those_of_log_normalised_cells(pair):
    raw, query = (cells.copy() for cells in pair)
    known, other = (logged(cells) for cells in pair)
    for reference, cells in ((raw, query), (known, other)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dice.DiceWarning)
            dice.tl.train_prior(reference, labels_key="cell_type", training=TRAINING)
            dice.tl.denoise(cells, reference)
            dice.tl.transfer_labels(cells, reference, "cell_type")
            dice.tl.novelty(cells, reference)
            dice.tl.cluster(cells, reference)
    np.testing.assert_allclose(raw.layers["dice_lognorm"].toarray(), known.X.toarray(), rtol=1e-6)
    np.testing.assert_array_equal(query.X.toarray(), pair[1].X.toarray())
    np.testing.assert_allclose(query.obsm["X_dice"], other.obsm["X_dice"], atol=1e-4)
    for key in ("cell_type_dice", "dice_novel", "dice_cluster"):
        assert (query.obs[key].astype(str) == other.obs[key].astype(str)).mean() > 0.99, key


def test_clusters_maps_of_rho_and_batches_take_counts(pair):
    reference, query = logged(pair[0]), pair[1].copy()
    dice.tl.train_prior(reference, training=TRAINING)
    dice.pl.rho(query, reference, rhos=[1.0], n_cells=50, show=False)
    assert not query.layers
    other = logged(pair[1])
    for cells in (query, other):
        cells.obs["batch"] = ["a", "b"] * 100
        dice.tl.cluster(cells, reference)
        dice.pp.correct_batches(cells, "batch", n_comps=5)
    assert (query.obs["dice_cluster"] == other.obs["dice_cluster"]).all()
    np.testing.assert_allclose(query.obsm["X_dice"], other.obsm["X_dice"], atol=1e-4)
    np.testing.assert_allclose(query.layers["harmony"], other.layers["harmony"], atol=1e-3)


def test_a_layer_is_made_once_and_in_a_copy_alone(pair):
    reference, query = logged(pair[0]), pair[1].copy()
    dice.tl.train_prior(reference, training=TRAINING)
    copied = dice.tl.denoise(query, reference, copy=True)
    assert "dice_lognorm" in copied.layers
    assert "dice_lognorm" not in query.layers
    assert "X_dice" not in query.obsm
    # A layer of this name that holds something else belongs to the user.
    query.layers["dice_lognorm"] = copied.layers["dice_lognorm"] * 0.5
    with pytest.raises(dice.DiceError, match="does not hold log-normalised counts"):
        dice.tl.denoise(query, reference)
    assert "X_dice" not in query.obsm
    # A call that fails leaves no layer behind.
    query = pair[1].copy()
    with pytest.raises(dice.DiceError, match="no column 'nothing'"):
        dice.tl.novelty(query, reference, groupby="nothing")
    assert not query.layers


def test_annotate_leaves_what_scanpy_and_the_next_verb_need(pair):
    reference, query = (cells.copy() for cells in pair)
    dice.tl.annotate(query, reference, "cell_type", training=TRAINING, n_top_genes=150)
    before = query.obs["cell_type_dice"].copy()
    dice.tl.transfer_labels(query, reference, "cell_type", groupby="auto")
    assert (query.obs["cell_type_dice"].astype(str) == before.astype(str)).all()
    assert query.obsm["X_umap"].shape == (200, 2)
    np.testing.assert_array_equal(query.obsm["X_umap"], query.obsm["X_dice_umap"])
    sc.pl.umap(query, color="cell_type_dice", show=False)
    # A map of the user's own stays.
    query.obsm["X_umap"] = np.zeros((200, 2))
    dice.tl.annotate(query, reference, "cell_type")
    assert not query.obsm["X_umap"].any()
