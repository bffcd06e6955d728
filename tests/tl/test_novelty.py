"""Cells that the reference does not know."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from simulation import simulate

import dice
from dice._model.arrays import auc


@pytest.fixture(scope="module")
def reference():
    reference = simulate(1500, 0)
    dice.tl.train_prior(reference, n_latent=6, preset="gmm", training=dice.Training(calibration_fraction=0.2))
    return reference


def with_strangers(n=400, n_novel=60, seed=1):
    """A matched query, the last cells of which are of a type of their own."""
    query = simulate(n, seed)
    rng = np.random.default_rng(99)
    strange = np.maximum(rng.gamma(2, 0.6, size=query.n_vars) + 0.45 * rng.normal(size=(n_novel, query.n_vars)), 0)
    query.X[-n_novel:] = strange.astype(np.float32)
    query.obs["novel"] = np.arange(n) >= n - n_novel
    return query


@pytest.mark.parametrize("labels_key", [None, "cell_type"])
def test_strangers_are_found(reference, labels_key):
    query = with_strangers()
    dice.tl.novelty(query, reference, labels_key=labels_key)
    novel, score = query.obs["novel"].to_numpy(), query.obs["dice_novelty"].to_numpy()
    assert auc(score[~novel], score[novel]) > 0.95
    called = query.obs["dice_novel"].to_numpy()
    assert called[novel].mean() > 0.7
    assert (called & ~novel).sum() / called.sum() < 0.2


def test_slots_and_files(reference, tmp_path):
    query = with_strangers()
    dice.tl.novelty(query, reference)
    assert query.obs["dice_novelty"].dtype == query.obs["dice_novelty_p"].dtype == np.float32
    assert query.obs["dice_novel"].dtype == bool
    record = query.uns["dice_novelty"]
    assert record["params"]["n_calibration"] == 300
    assert record["params"]["n_novel"] == query.obs["dice_novel"].sum()
    query.write_h5ad(tmp_path / "query.h5ad")
    pd.testing.assert_frame_equal(ad.read_h5ad(tmp_path / "query.h5ad").obs, query.obs)
    dice.tl.novelty(query, reference, key_added="other")
    assert {"other", "other_p", "other_flag"} <= set(query.obs)


@pytest.mark.parametrize("labels_key", [None, "cell_type"])
def test_groups_of_strangers_are_found(reference, labels_key, tmp_path):
    query = with_strangers()
    query.obs["cluster"] = pd.Categorical(np.where(query.obs["novel"], "new", query.obs["cell_type"].astype(str)))
    query.obs.loc[query.obs_names[:7], "cluster"] = np.nan
    dice.tl.novelty(query, reference, labels_key=labels_key, groupby="cluster")
    table = query.uns["dice_novelty"]["groups"]
    assert list(table["group"][table["novel"]]) == ["new"]
    assert table["n_cells"].sum() == query.n_obs - 7
    np.testing.assert_array_equal(query.obs["dice_novel_group"], query.obs["novel"])
    query.write_h5ad(tmp_path / "query.h5ad")
    query.write_zarr(tmp_path / "query.zarr")
    for stored in (ad.read_h5ad(tmp_path / "query.h5ad"), ad.read_zarr(tmp_path / "query.zarr")):
        for name, values in table.items():
            np.testing.assert_array_equal(stored.uns["dice_novelty"]["groups"][name], values)
    dice.tl.novelty(query, reference, labels_key=labels_key)
    assert "dice_novel_group" not in query.obs
    assert "groups" not in query.uns["dice_novelty"]


def test_groups_by_a_prior_that_knows_labels(reference):
    knowing = reference.copy()
    training = dice.Training(max_steps=5, calibration_fraction=0.2)
    dice.tl.train_prior(knowing, n_latent=6, labels_key="cell_type", training=training)
    query = with_strangers()
    query.obs["cluster"] = np.where(query.obs["novel"], "new", query.obs["cell_type"].astype(str))
    query.obs.loc[query.obs_names[:3], "cluster"] = "few"
    dice.tl.novelty(query, dice.Prior.from_anndata(knowing), groupby="cluster", key_added="other")
    table = query.uns["other"]["groups"]
    assert list(table["group"][table["novel"]]) == ["new"]
    assert list(table["group"][np.isnan(table["p"])]) == ["few"]
    np.testing.assert_array_equal(query.obs["other_group_flag"], query.obs["novel"])


@pytest.mark.parametrize("labels_key", [None, "cell_type"])
def test_p_values_of_a_matched_query_are_uniform(reference, labels_key):
    """No more small ones than there should be, within what 300 calibration cells tell."""
    query = simulate(2000, 2)
    dice.tl.novelty(query, reference, labels_key=labels_key)
    p = query.obs["dice_novelty_p"].to_numpy()
    for level in (0.05, 0.1, 0.5):
        error = np.sqrt(level * (1 - level) * (1 / 2000 + 1 / 300))
        assert abs((p <= level).mean() - level) < 4 * error
    assert query.obs["dice_novel"].mean() < 0.05


def test_a_prior_without_its_cells_is_enough(reference, tmp_path):
    dice.Prior.from_anndata(reference).save(tmp_path / "prior.h5ad")
    query = with_strangers()
    dice.tl.novelty(query, tmp_path / "prior.h5ad")
    novel, score = query.obs["novel"].to_numpy(), query.obs["dice_novelty"].to_numpy()
    assert auc(score[~novel], score[novel]) > 0.9
    matched = simulate(1500, 3)
    dice.tl.novelty(matched, tmp_path / "prior.h5ad")
    assert (matched.obs["dice_novelty_p"] <= 0.1).mean() == pytest.approx(0.1, abs=0.1)


def test_genes_that_the_query_lacks(reference):
    """Calibration cells are seen through the same genes; a prior alone cannot do that, and says so."""
    query = simulate(1000, 4)[:, 12:].copy()
    dice.tl.novelty(query, reference)
    assert (query.obs["dice_novelty_p"] <= 0.1).mean() == pytest.approx(0.1, abs=0.075)
    with pytest.warns(dice.DiceWarning, match="pass the reference with its cells"):
        dice.tl.novelty(query, dice.Prior.from_anndata(reference))


def test_the_denoised_embedding_does_not_matter(reference):
    one, other = with_strangers(100, 20), with_strangers(100, 20)
    dice.tl.denoise(other, reference, rho=5)
    for query in (one, other):
        dice.tl.novelty(query, reference)
    np.testing.assert_array_equal(one.obs["dice_novelty"], other.obs["dice_novelty"])


def test_labels_of_the_prior_are_taken_by_themselves(reference):
    plain, labelled, asked = (with_strangers(100, 20) for _ in range(3))
    knowing = reference.copy()
    dice.tl.train_prior(
        knowing, n_latent=6, labels_key="cell_type", training=dice.Training(max_steps=5, calibration_fraction=0.2)
    )
    dice.tl.novelty(labelled, knowing)
    dice.tl.novelty(asked, knowing, labels_key="cell_type")
    dice.tl.novelty(plain, knowing, labels_key=None)
    np.testing.assert_array_equal(labelled.obs["dice_novelty"], asked.obs["dice_novelty"])
    assert not np.array_equal(labelled.obs["dice_novelty"], plain.obs["dice_novelty"])


def test_no_cells(reference):
    query = simulate(5, 5)[:0].copy()
    dice.tl.novelty(query, reference, check=False)
    assert query.obs["dice_novel"].shape == (0,)


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        ("none", {}, "calibration_fraction=0.1"),
        ("prior", {"labels_key": "cell_type"}, "needs the reference with its cells"),
        ("", {"alpha": 0}, "`alpha` must be a number between 0 and 1, got 0"),
        ("", {"alpha": "x"}, "`alpha` must be .*got 'x'"),
        ("", {"labels_key": "nothing"}, "no column 'nothing'"),
        ("", {"key_added": ""}, "`key_added` must be .*got ''"),
        ("", {"groupby": "nothing"}, "no column 'nothing'"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(reference, change, arguments, sentence):
    source = reference.copy()
    if change == "none":
        source.obs["dice_split"] = "train"
    query = simulate(20, 6)
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        dice.tl.novelty(query, dice.Prior.from_anndata(source) if change == "prior" else source, **arguments)
    assert "\n" not in str(caught.value)
    assert list(query.obs) == ["cell_type"]
    assert not query.uns


def test_the_reference_itself_is_no_query(reference):
    for source in (None, reference):
        with pytest.raises(dice.DiceError, match="adata is the reference itself"):
            dice.tl.novelty(reference, source)


def test_a_test_without_power_says_so(reference):
    """100 calibration cells cannot call anything among 1,000 cells unless 100 of them share the smallest p-value."""
    kept = np.flatnonzero(reference.obs["dice_split"] == "calibration")[30:]
    few = reference[np.setdiff1d(np.arange(reference.n_obs), kept)].copy()
    query = simulate(300, 5)
    with pytest.warns(
        dice.DiceWarning,
        match="With 30 calibration cells, none of 300 cells can be called novel at alpha=0.1 unless 97 are",
    ):
        dice.tl.novelty(query, few)
    assert query.uns["dice_novelty"]["params"]["fewest_novel"] == 97


def test_a_shifted_query_is_named(reference):
    query = simulate(300, 5)
    query.X = query.X + np.linspace(0, 1.5, query.n_vars, dtype=np.float32)
    with pytest.warns(dice.DiceWarning, match="the query differs from its reference as a whole"):
        dice.tl.novelty(query, reference, check=False)
