"""A prior survives files, copies and subsetting to the bit, and a damaged one is refused."""

from __future__ import annotations

import copy
import json

import anndata as ad
import numpy as np
import pytest

import dice
from dice._core.schema import checksum


@pytest.fixture(scope="module")
def reference():
    reference, _ = dice.datasets.synthetic(1, n_reference=200)
    dice.tl.train_prior(reference, n_latent=5, scale=False, max_steps=10)
    return reference


def assert_same(one: dice.Prior, other: dice.Prior) -> None:
    first, second = one.to_arrays(), other.to_arrays()
    assert first["sha256"] == second["sha256"]
    for name, weight in first["weights"].items():
        np.testing.assert_array_equal(weight, second["weights"][name])


def save_h5ad(adata, path):
    adata.write_h5ad(path / "a.h5ad")
    return ad.read_h5ad(path / "a.h5ad")


def save_zarr(adata, path):
    adata.write_zarr(path / "a.zarr")
    return ad.read_zarr(path / "a.zarr")


@pytest.mark.parametrize(
    "change",
    [
        save_h5ad,
        save_zarr,
        lambda adata, _: adata.copy(),
        lambda adata, _: adata[:10].copy(),
        lambda adata, _: adata[:, :100].copy(),
        lambda adata, _: adata[adata.obs["cell_type"] == "Cluster 1"],
    ],
    ids=["h5ad", "zarr", "copy", "cells", "genes", "view"],
)
def test_prior_travels_inside_anndata(reference, change, tmp_path):
    other = change(reference, tmp_path)
    assert_same(dice.Prior.from_anndata(reference), dice.Prior.from_anndata(other))


def test_prior_travels_in_a_file_of_its_own(reference, tmp_path):
    prior = dice.Prior.from_anndata(reference)
    prior.save(tmp_path / "prior.h5ad")
    assert_same(prior, dice.Prior.load(tmp_path / "prior.h5ad"))
    assert ad.read_h5ad(tmp_path / "prior.h5ad").n_obs == 0
    reference.write_zarr(tmp_path / "reference.zarr")
    assert_same(prior, dice.Prior.load(tmp_path / "reference.zarr"))


def test_a_failed_save_leaves_the_old_file(reference, tmp_path, monkeypatch):
    prior = dice.Prior.from_anndata(reference)
    prior.save(tmp_path / "prior.h5ad")
    before = (tmp_path / "prior.h5ad").read_bytes()

    def full(self, path):
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(ad.AnnData, "write_h5ad", full)
    with pytest.raises(OSError, match="No space left"):
        prior.save(tmp_path / "prior.h5ad")
    assert [file.name for file in tmp_path.iterdir()] == ["prior.h5ad"]
    assert (tmp_path / "prior.h5ad").read_bytes() == before


def resign(raw):
    raw["sha256"] = checksum(raw)


def with_config(raw, **changes):
    config = json.loads(raw["config"])
    config["denoiser"].update(changes)
    raw["config"] = json.dumps(config)
    resign(raw)


def extra_weight(raw):
    raw["weights"]["extra"] = np.zeros(3, dtype=np.float32)
    resign(raw)


def nan_weight(raw):
    raw["weights"]["outlet.bias"][0] = np.nan
    resign(raw)


def one_byte(raw):
    raw["loadings"].view(np.uint8)[5, 3] ^= 1


def newer(raw):
    raw["format"] = 2


def renamed_gene(raw):
    raw["genes"][0] = "other"


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (extra_weight, "missing or unknown weights"),
        (nan_weight, "not finite"),
        (one_byte, "does not match its checksum"),
        (renamed_gene, "does not match its checksum"),
        (newer, "reads up to 1"),
        (lambda raw: with_config(raw, width=10**9), "out of bounds"),
        (lambda raw: with_config(raw, width=256), "is not float32 of shape"),
        (lambda raw: with_config(raw, n_latent=6), "is not float32 of shape"),
        (lambda raw: raw.pop("loadings"), "missing or unknown fields"),
        (lambda raw: raw.update(loadings=raw["loadings"].astype(np.float64)), "float32"),
        (lambda raw: raw.update(config="{"), "not readable"),
        (lambda raw: raw.pop("format"), "no 'format' number"),
    ],
)
def test_a_forged_or_damaged_prior_is_refused(reference, forge, sentence):
    raw = copy.deepcopy(reference.uns["dice"])
    forge(raw)
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        dice.Prior.from_arrays(raw)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_prior_is_refused(tmp_path):
    (tmp_path / "text.h5ad").write_text("hello")
    with pytest.raises(dice.DiceError, match="cannot be read"):
        dice.Prior.load(tmp_path / "text.h5ad")
    ad.AnnData(np.ones((2, 2), dtype=np.float32)).write_h5ad(tmp_path / "empty.h5ad")
    with pytest.raises(dice.DiceError, match="holds no prior"):
        dice.Prior.load(tmp_path / "empty.h5ad")
