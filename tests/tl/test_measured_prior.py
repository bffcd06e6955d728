"""Priors that know the noise of counts: stored, taken up again, refused where they are forged."""

from __future__ import annotations

import copy
import json

import anndata as ad
import numpy as np
import pytest
import walk

import dice
from dice._core.prior.checksum import checksum


@pytest.fixture(scope="module")
def pair():
    return walk.counted_pair()


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_the_measurement_travels_with_the_prior(pair, ending, tmp_path):
    reference, query = pair[0], pair[1].copy()
    path = tmp_path / f"reference.{ending}"
    getattr(reference, f"write_{ending}")(path)
    expected = dice.tl.denoise(query, reference, n_samples=2, copy=True)
    found = dice.tl.denoise(query, path, n_samples=2, copy=True)
    assert reference.uns["dice"]["format"] == 2
    for key in ("X_dice", "X_dice_samples"):
        np.testing.assert_array_equal(found.obsm[key], expected.obsm[key])


def test_a_prior_without_counts_is_stored_as_before():
    reference, _ = dice.datasets.synthetic(1, n_reference=200)
    dice.tl.train_prior(reference, n_latent=5, scale=False, training=dice.Training(max_steps=5))
    assert reference.uns["dice"]["format"] == 1
    assert "measurement" not in reference.uns["dice"]
    assert dice.Prior.from_anndata(reference).measurement is None


def other_config(raw):
    config = json.loads(raw["config"])
    config["measurement"]["width"] = 64
    raw["config"] = json.dumps(config, sort_keys=True)


def no_config(raw):
    config = json.loads(raw["config"])
    del config["measurement"]
    raw["config"] = json.dumps(config, sort_keys=True)


def huge(raw):
    config = json.loads(raw["config"])
    config["measurement"]["width"] = 10**9
    raw["config"] = json.dumps(config, sort_keys=True)


def other_latents(raw):
    config = json.loads(raw["config"])
    config["measurement"]["n_latent"] += 1
    raw["config"] = json.dumps(config, sort_keys=True)


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (lambda raw: raw.update(format=1), "does not fit its fields"),
        (lambda raw: raw.pop("measurement"), "does not fit its fields"),
        (lambda raw: raw["measurement"].pop("scale"), "missing or unknown weights"),
        (lambda raw: raw["measurement"].update(more=np.ones(3, np.float32)), "missing or unknown weights"),
        (lambda raw: raw["measurement"]["scale"].fill(-1), "do not make a denoiser"),
        (lambda raw: raw["measurement"]["depth_sd"].fill(0), "do not make a denoiser"),
        (lambda raw: raw["measurement"]["filter.weight"].fill(np.nan), "not finite"),
        (lambda raw: raw["measurement"].update(scale="one"), "not numeric"),
        (other_config, "shape"),
        (no_config, "does not agree"),
        (huge, "out of bounds"),
        (other_latents, "out of bounds"),
    ],
)
def test_a_forged_measurement_is_refused(pair, forge, sentence):
    forged = pair[0].copy()
    raw = copy.deepcopy(dict(pair[0].uns["dice"]))
    forge(raw)
    raw["sha256"] = checksum(raw)
    forged.uns["dice"] = raw
    with pytest.raises(dice.DiceError, match=sentence):
        dice.tl.denoise(pair[1].copy(), forged)


def test_a_damaged_measurement_is_refused(pair):
    damaged = pair[0].copy()
    damaged.uns["dice"]["measurement"]["filter.weight"][0, 0] += 1
    with pytest.raises(dice.DiceError, match="checksum"):
        dice.tl.denoise(pair[1].copy(), damaged)


def test_training_is_taken_up_where_it_was_left(pair, tmp_path, monkeypatch):
    """Killed while the measurement is learned, and again while the prior is: the same prior to the bit."""
    from dice._core.prior.training import Trainer

    cells = ad.AnnData(pair[0].X.copy(), obs=pair[0].obs[[]], var=pair[0].var[[]])
    whole, parts = cells.copy(), cells.copy()
    settings = dice.Training(max_steps=60)
    dice.tl.train_prior(whole, training=settings)
    step = Trainer._step
    for kind in ("measurement", "edm"):

        def killed(self, kind=kind):
            if self.denoiser.kind == kind and self.step == 55:
                raise MemoryError("killed")
            step(self)

        monkeypatch.setattr(Trainer, "_step", killed)
        monkeypatch.setattr("dice._reference.learn.EVERY_STEPS", 10)
        with pytest.raises(MemoryError):
            dice.tl.train_prior(parts, training=dice.Training(max_steps=60, checkpoint=tmp_path / "state.npz"))
        monkeypatch.setattr(Trainer, "_step", step)
    dice.tl.train_prior(parts, training=dice.Training(max_steps=60, checkpoint=tmp_path / "state.npz"))
    assert parts.uns["dice"]["sha256"] == whole.uns["dice"]["sha256"]


@pytest.mark.filterwarnings("ignore:The query differs from its reference")
def test_labels_of_a_shallow_query(pair):
    """The reference is thinned to its depth before it classifies and calibrates."""
    from dice._core.measurement.counts import recover
    from dice._core.measurement.matching import thinned

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
