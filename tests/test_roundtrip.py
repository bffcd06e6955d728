"""A prior survives files, copies and subsetting to the bit, and a damaged one is refused."""

from __future__ import annotations

import contextlib
import copy
import errno
import json
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pytest
import stored_priors

import dice
from dice._model.schema import checksum


@pytest.fixture(scope="module")
def reference():
    reference, _ = dice.datasets.synthetic(1, n_reference=200)
    dice.tl.train_prior(reference, n_latent=5, scale=False, training=dice.Training(max_steps=10))
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

    def full(self, content):
        with self.open("wb") as stream:
            stream.write(bytes(content)[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"prior.h5ad' cannot be written \(No space left on device\)") as caught:
        prior.save(tmp_path / "prior.h5ad")
    assert isinstance(caught.value, dice.DiceError)
    assert [file.name for file in tmp_path.iterdir()] == ["prior.h5ad"]
    assert (tmp_path / "prior.h5ad").read_bytes() == before


def test_a_missing_folder_is_one_sentence(reference, tmp_path):
    prior = dice.Prior.from_anndata(reference)
    with pytest.raises(dice.DiceError, match=r"cannot be written .* in a folder that exists"):
        prior.save(tmp_path / "nowhere" / "prior.h5ad")
    assert not list(tmp_path.iterdir())


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
    raw["format"] = 6


def tilted(raw):
    raw["loadings"][:, 1] = raw["loadings"][:, 0]
    resign(raw)


def negative_variance(raw):
    raw["weights"]["filter.posterior_variance"][:] = -2
    resign(raw)


def with_value(name, value):
    """Put one value into a number or the first entry of an array, with a checksum that fits."""

    def forge(raw):
        if np.ndim(raw[name]):
            raw[name][0] = value
        else:
            raw[name] = value
        resign(raw)

    return forge


def no_variance(raw):
    raw["weights"]["filter.prior_variance"][:] = 0
    resign(raw)


def huge_weights(raw):
    raw["weights"]["outlet.weight"][:] = 1e38
    resign(raw)


def renamed_gene(raw):
    raw["genes"][0] = "other"


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (extra_weight, "missing or unknown entries of 'weights'"),
        (nan_weight, "is not between -1e"),
        (one_byte, "does not match its checksum"),
        (renamed_gene, "does not match its checksum"),
        (newer, "reads 5: install a newer one"),
        (lambda raw: raw.update(format=3), "reads 5: train it again"),
        (lambda raw: raw.update(format=True), "not a whole number"),
        (tilted, "not orthonormal"),
        (negative_variance, "do not make a denoiser"),
        (no_variance, "do not make a denoiser"),
        (huge_weights, "is not between -1e"),
        (with_value("center", 1e38), "'center' is not between -1e"),
        (with_value("mean", -1e38), "'mean' is not between -1e"),
        (with_value("latent_scale", 1e300), "'latent_scale' is not between 1e-12 and"),
        (with_value("latent_scale", 0.0), "'latent_scale' is not between 1e-12 and"),
        (with_value("noise", -1.0), "'noise' is not between 0 and"),
        (with_value("scale", 1e-45), "'scale' is not between 1e-12 and"),
        (with_value("gene_noise", -1), "'gene_noise' is not between 0 and"),
        (with_value("singular_values", -1), "'singular_values' is not between 0 and"),
        (with_value("loadings", 1e38), "'loadings' is not between -1e"),
        (lambda raw: raw.update(singular_values=np.ones(2, np.float32)), "fewer than its latents"),
        (lambda raw: raw.update(singular_values=np.zeros(9, np.float32)), "are all zero"),
        (lambda raw: raw.update(config=raw["config"].replace('"cap": null', '"cap": 1e308')), "out of bounds"),
        (lambda raw: raw.update(genes=[["a"], ["b", "c"]]), "not a list of names"),
        (lambda raw: raw.update(singular_values=[[1.0], [1.0, 2.0]]), "is not float32 of shape"),
        (lambda raw: raw.update(params="\ud800"), "'params' is not a short text"),
        (lambda raw: raw["genes"].__setitem__(0, "\udfff"), "not unique names"),
        (lambda raw: raw["genes"].__setitem__(0, "a\0b"), "not unique names"),
        (lambda raw: raw["history"].update({"\ud800": np.zeros(1, np.float32)}), "not a table of arrays"),
        (lambda raw: raw.update({"\ud800": 1}), "missing or unknown fields"),
        (lambda raw: raw["history"].update(step=np.zeros((2, 2), np.float32)), "float32 vectors"),
        (lambda raw: raw["statistics"].update(depth=np.inf), "'statistics' is not between"),
        (lambda raw: raw["weights"].update({"outlet.bias": "text"}), "not arrays of numbers"),
        (lambda raw: raw.update(params="[1]"), "not a table of text"),
        (lambda raw: raw.update(genes=np.array(["a"] * 3)), "not unique names"),
        (lambda raw: raw.update(genes=np.zeros(3)), "not a list of names"),
        (lambda raw: raw.update(latent_scale=np.nan), "'latent_scale' is not between"),
        (lambda raw: raw.update(singular_values=np.zeros((1, 1), np.float32)), "is not float32 of shape"),
        (lambda raw: with_config(raw, surprise=1), "out of bounds"),
        (lambda raw: with_config(raw, n_components=3), "out of bounds"),
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
    with pytest.raises(dice.DiceError, match="has no prior"):
        dice.Prior.load(tmp_path / "empty.h5ad")


def mutate(raw, rng):
    """Change one thing in a stored prior at random; the checksum is left as it was, or made to fit."""
    path, node = [], raw
    while isinstance(node, dict):
        path.append(sorted(node)[rng.integers(len(node))])
        node = node[path[-1]]
    holder = raw
    for name in path[:-1]:
        holder = holder[name]
    kind = rng.integers(6)
    if kind == 0:
        del holder[path[-1]]
    elif kind == 1:
        holder[path[-1]] = [None, "", -1, 2.5, np.nan, [], {}, np.zeros(0, np.float32)][rng.integers(8)]
    elif kind == 2:
        holder[f"{path[-1]}_"] = node
    elif isinstance(node, np.ndarray) and node.dtype.kind == "f" and node.size:
        flat = node.reshape(-1).copy()
        cell = rng.integers(flat.size)
        if kind == 3:
            flat[cell] = [np.nan, np.inf, -1e30, 1e38][rng.integers(4)]
        elif kind == 4:
            flat.view(np.uint8)[rng.integers(flat.nbytes)] ^= np.uint8(1 << rng.integers(8))
        holder[path[-1]] = flat.reshape(node.shape) if kind < 5 else flat[:-1]
    elif isinstance(node, np.ndarray):
        holder[path[-1]] = node[::-1].copy()
    elif isinstance(node, str):
        at = rng.integers(len(node))
        holder[path[-1]] = node[:at] + "x" + node[at + 1 :]
    else:
        holder[path[-1]] = type(node)(node + 1)
    if rng.random() < 0.3 and isinstance(raw.get("sha256"), str):
        # An unreadable value has no checksum either.
        with contextlib.suppress(Exception):
            resign(raw)


def test_random_mutations_are_refused_or_harmless():
    """300 of them: one sentence, or a prior that says exactly what it holds and stays finite. Never another error."""
    source = ad.read_h5ad(stored_priors.path("plain")).uns["dice"]
    original = source["sha256"]
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        raw = copy.deepcopy(source)
        mutate(raw, rng)
        try:
            prior = dice.Prior.from_arrays(raw)
        except dice.DiceError as error:
            refused += len(str(error).splitlines()) == 1
        else:
            assert prior.to_arrays()["sha256"] == raw["sha256"]
            # Without a new checksum nothing but the original passes.
            assert raw["sha256"] != original or checksum(source) == checksum(raw)
    assert refused > 200


@pytest.mark.parametrize("kind", stored_priors.KINDS)
def test_a_stored_prior_is_the_same_prior(kind):
    """Out of a file and out of an object, it has its checksum and denoises alike."""
    path = stored_priors.path(kind)
    stored = ad.read_h5ad(path)
    priors = dice.Prior.load(path), dice.Prior.from_anndata(stored)
    assert priors[0].measured == (kind in ("counts", "labels"))
    cells = [stored.copy() for _ in priors]
    for prior, adata in zip(priors, cells, strict=True):
        assert prior.to_arrays()["sha256"] == stored.uns["dice"]["sha256"]
        dice.tl.denoise(adata, prior, check=False)
        assert adata.uns["X_dice"]["params"]["measured"] == prior.measured
    np.testing.assert_array_equal(*(adata.obsm["X_dice"] for adata in cells))


@pytest.mark.parametrize("chunks", [None, (10**9,)])
def test_a_file_that_would_unpack_to_too_much_is_refused_before_it_is_read(reference, chunks, tmp_path):
    """Empty chunks cost nothing on disk: a file of kilobytes can claim any size."""
    path = tmp_path / "prior.h5ad"
    dice.Prior.from_anndata(reference).save(path)
    with h5py.File(path, "a") as file:
        del file["uns/dice/mean"]
        shape, limit = ((10**9,), None) if chunks is None else ((5,), (None,))
        mean = file.create_dataset("uns/dice/mean", shape, "f4", chunks=chunks or (10**6,), maxshape=limit)
        mean.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    assert path.stat().st_size < 5e6
    with pytest.raises(dice.DiceError, match=r"'mean' increases the unpacked size to 3,8\d\d MB"):
        dice.Prior.load(path)
