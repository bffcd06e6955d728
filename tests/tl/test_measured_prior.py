"""Priors that know the noise of counts: stored, taken up again, refused where they are forged."""

from __future__ import annotations

import copy
import json

import anndata as ad
import numpy as np
import pytest
import walk

import dice
from dice._model.schema import checksum


@pytest.fixture(scope="module")
def pair():
    return walk.counted_pair()


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_the_denoiser_travels_with_the_prior(pair, ending, tmp_path):
    reference, query = pair[0], pair[1].copy()
    path = tmp_path / f"reference.{ending}"
    getattr(reference, f"write_{ending}")(path)
    expected = dice.tl.denoise(query, reference, n_samples=2, copy=True)
    found = dice.tl.denoise(query, path, n_samples=2, copy=True)
    for key in ("X_dice", "X_dice_samples"):
        np.testing.assert_array_equal(found.obsm[key], expected.obsm[key])


def test_a_prior_without_counts_knows_no_depth():
    reference, _ = dice.datasets.synthetic(1, n_reference=200)
    dice.tl.train_prior(reference, n_latent=5, scale=False, training=dice.Training(max_steps=5))
    prior = dice.Prior.from_anndata(reference)
    assert type(prior.denoiser).kind == "depth"
    assert not prior.measured


@pytest.mark.parametrize("preset", ["gmm", "paper-small"])
def test_presets_that_assume_their_noise(pair, preset):
    cells = ad.AnnData(pair[0].X.copy(), obs=pair[0].obs[[]], var=pair[0].var[[]])
    training = dice.Training() if preset == "gmm" else dice.Training(max_steps=5)
    dice.tl.train_prior(cells, preset=preset, n_latent=5, training=training)
    assert not dice.Prior.from_anndata(cells).measured
    query = pair[1].copy()
    dice.tl.denoise(query, cells)
    assert not query.uns["X_dice"]["params"]["measured"]


def config(**changes):
    """A forgery of the size of the network."""

    def forge(raw):
        stored = json.loads(raw["config"])
        stored["denoiser"] |= changes
        raw["config"] = json.dumps(stored, sort_keys=True)

    return forge


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (lambda raw: raw.update(format=2), "format 2, but this version of dice reads 5"),
        (lambda raw: raw["weights"].pop("filter.typical"), "missing or unknown entries of 'weights'"),
        (lambda raw: raw["weights"].update(more=np.ones(3, np.float32)), "missing or unknown entries of 'weights'"),
        (lambda raw: raw["weights"]["filter.posterior_variance"].fill(-1), "do not make a denoiser"),
        (lambda raw: raw["weights"]["filter.depth_sd"].fill(0), "do not make a denoiser"),
        (lambda raw: raw["weights"]["filter.linear.weight"].fill(np.nan), "is not between"),
        (lambda raw: raw["weights"].update({"filter.typical": "one"}), "not arrays of numbers"),
        (config(width=64), "shape"),
        (config(width=10**9), "out of bounds"),
        (config(more=1), "out of bounds"),
    ],
)
def test_a_forged_denoiser_is_refused(pair, forge, sentence):
    forged = pair[0].copy()
    raw = copy.deepcopy(dict(pair[0].uns["dice"]))
    forge(raw)
    raw["sha256"] = checksum(raw)
    forged.uns["dice"] = raw
    with pytest.raises(dice.DiceError, match=sentence):
        dice.tl.denoise(pair[1].copy(), forged)


def test_a_damaged_denoiser_is_refused(pair):
    damaged = pair[0].copy()
    damaged.uns["dice"]["weights"]["filter.linear.weight"][0, 0] += 1
    with pytest.raises(dice.DiceError, match="checksum"):
        dice.tl.denoise(pair[1].copy(), damaged)


def test_training_is_taken_up_where_it_was_left(pair, tmp_path, monkeypatch):
    """Killed twice between two evaluations: the same prior to the bit."""
    from dice._model.training import Trainer

    cells = ad.AnnData(pair[0].X.copy(), obs=pair[0].obs[[]], var=pair[0].var[[]])
    whole, parts = cells.copy(), cells.copy()
    dice.tl.train_prior(whole, training=dice.Training(max_steps=60))
    step = Trainer._step
    for last in (25, 45):

        def killed(self, last=last):
            if self.step == last:
                raise MemoryError("killed")
            step(self)

        monkeypatch.setattr(Trainer, "_step", killed)
        monkeypatch.setattr("dice._train.train.EVERY_STEPS", 10)
        with pytest.raises(MemoryError):
            dice.tl.train_prior(parts, training=dice.Training(max_steps=60, checkpoint=tmp_path / "state.npz"))
        monkeypatch.setattr(Trainer, "_step", step)
    dice.tl.train_prior(parts, training=dice.Training(max_steps=60, checkpoint=tmp_path / "state.npz"))
    assert parts.uns["dice"]["sha256"] == whole.uns["dice"]["sha256"]
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]


@pytest.mark.filterwarnings("ignore:The query differs from its reference")
def test_labels_of_a_shallow_query(pair):
    """The reference is thinned to its depth before it classifies and calibrates."""
    from dice._model.counts import recover, thinned

    reference, query = pair[0], pair[1].copy()
    truth = query.obs["cell_type"].astype(str).to_numpy()
    right = {}
    for share in (1.0, 0.1):
        query.X = thinned(recover(pair[1].X), np.full(query.n_obs, share), np.arange(query.n_obs))
        query.X = query.X.astype(np.float32)
        dice.tl.transfer_labels(query, reference, "cell_type", check=False)
        labels = np.array(query.uns["cell_type_dice"]["labels"])
        right[share] = (labels[query.obsm["cell_type_dice_prob"].to_numpy().argmax(1)] == truth).mean()
        sets = query.obsm["cell_type_dice_set"].to_numpy()
        covered = sets[np.arange(query.n_obs), [list(labels).index(name) for name in truth]].mean()
        assert covered > 0.8
    assert right[1.0] > 0.95
    assert right[0.1] > 0.8


def test_one_cell_that_is_no_counts_does_not_change_the_others(pair):
    reference, query = pair[0], pair[1].copy()
    dice.tl.denoise(query, reference)
    expected = query.obsm["X_dice"].copy()
    values = query.X.toarray()
    values[7, np.flatnonzero(values[7])[0]] *= 1.01
    query.X = values
    with pytest.warns(dice.DiceWarning, match="1 of 200 cells of adata are not log-normalised counts"):
        dice.tl.denoise(query, reference)
    others = np.arange(query.n_obs) != 7
    np.testing.assert_allclose(query.obsm["X_dice"][others], expected[others], atol=1e-3)
    assert np.isfinite(query.obsm["X_dice"]).all()


@pytest.mark.filterwarnings("ignore:.*not log-normalised counts", "ignore:The query differs from its reference")
def test_labels_of_a_query_that_is_no_counts(pair):
    """Query and reference are read under one noise."""
    reference, query = pair[0], pair[1].copy()
    query.X = (query.X.toarray() * np.linspace(0.98, 1.02, query.n_vars)).astype(np.float32)
    classifier = dice.Classifier("denoised")
    dice.tl.transfer_labels(query, reference, "cell_type", classifier=classifier, check=False)
    labels = np.array(query.uns["cell_type_dice"]["labels"])
    given = labels[query.obsm["cell_type_dice_prob"].to_numpy().argmax(1)]
    assert (given == query.obs["cell_type"].astype(str).to_numpy()).mean() > 0.9


def test_the_reference_itself_from_file_to_file(pair, tmp_path):
    reference = pair[0].copy()
    reference.write_h5ad(tmp_path / "reference.h5ad")
    dice.tl.denoise(reference)
    dice.tl.denoise_to_zarr(tmp_path / "reference.h5ad", pair[0], tmp_path / "out.zarr")
    np.testing.assert_allclose(ad.read_zarr(tmp_path / "out.zarr").obsm["X_dice"], reference.obsm["X_dice"], atol=1e-3)


def test_cells_that_were_added_to_the_reference_are_not_its_own(pair):
    query = pair[1].copy()
    dice.tl.denoise(query, pair[0])
    both = ad.concat([pair[0], pair[1]], join="outer", uns_merge="first", index_unique="-")
    both.obs_names = [*pair[0].obs_names, *pair[1].obs_names]
    dice.tl.denoise(both)
    np.testing.assert_allclose(both.obsm["X_dice"][pair[0].n_obs :], query.obsm["X_dice"], atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*genes found")
def test_missing_genes_make_a_cell_less_sure(pair):
    reference, query = pair[0], pair[1].copy()
    dice.tl.denoise(query, reference)
    part = query[:, ::3].copy()
    dice.tl.denoise(part, reference)
    assert part.obs["dice_uncertainty"].mean() > 1.02 * query.obs["dice_uncertainty"].mean()


def test_a_huge_rho_gives_the_prior_and_a_tiny_one_nothing(pair):
    query = pair[1].copy()
    dice.tl.denoise(query, pair[0])
    sure = query.obs["dice_uncertainty"].mean()
    spread = {}
    for rho in (1e-8, 1e3, 1e6):
        dice.tl.denoise(query, pair[0], rho=rho, n_samples=4)
        spread[rho] = query.obs["dice_uncertainty"].mean(), query.obsm["X_dice_samples"].std()
    assert spread[1e-8][0] == pytest.approx(sure, rel=1e-3)
    np.testing.assert_allclose(spread[1e3], spread[1e6], rtol=0.05)
