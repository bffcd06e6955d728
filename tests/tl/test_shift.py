"""Queries that differ from the reference as a whole."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest

import dice
from dice._model.schema import checksum
from dice._query.query import Query
from dice._query.samples import posterior_samples
from dice.options import Options


def shifted(query, reference, size=6.0, seed=0):
    """The query with an offset of its genes, `size` latent scales long, and that offset in the latent space."""
    prior = dice.Prior.from_anndata(reference)
    direction = np.random.default_rng(seed).normal(size=prior.n_latent)
    delta = size * prior.latent_scale * direction / np.linalg.norm(direction)
    moved = query.copy()
    moved.X = (query.X + prior.projection.loadings @ delta).astype(np.float32)
    return moved, delta


def error(found, wanted):
    return np.sqrt(np.square(found - wanted).mean()) / wanted.std()


@pytest.mark.parametrize("batch_key", [None, "run"])
def test_embeddings_stay_as_they_were_measured_unless_a_shift_is_named(query, reference, batch_key):
    """No evidence without labels tells which shift to remove."""
    moved, _ = shifted(query, reference)
    moved.obs["run"] = np.where(np.arange(query.n_obs) % 2 == 0, "one", "two")
    alone = dice.tl.denoise(moved, reference, shift=False, copy=True)
    dice.tl.denoise(moved, reference, shift=dice.Shift(batch_key=batch_key))
    np.testing.assert_array_equal(moved.obsm["X_dice"], alone.obsm["X_dice"])
    assert moved.uns["X_dice"]["shift"] == {"strategy": "none"}
    assert moved.uns["X_dice"]["call"]["shift"]["strategy"] == "auto"


@pytest.mark.parametrize("view", ["standardized", "profiles"])
def test_views_for_labels_move_no_embedding(query, reference, view):
    with pytest.raises(dice.DiceError, match=rf"shift='{view}' is for labels only .*dice.tl.transfer_labels"):
        dice.tl.denoise(query, reference, shift=view)
    assert "X_dice" not in query.obsm


def test_clusters_that_moved_come_back():
    """A less sensitive technology: every cell type is nearer to the origin, and none lies outside the reference."""
    rng = np.random.default_rng(0)
    types, centers = rng.integers(4, size=2000), 20 * np.linalg.qr(rng.normal(size=(40, 4)))[0].T
    cells = ad.AnnData((centers[types] + rng.normal(size=(2000, 40))).astype(np.float32))
    reference, query = cells[:500].copy(), cells[500:].copy()
    dice.tl.train_prior(reference, n_latent=6, scale=False, preset="gmm")
    moved = query.copy()
    moved.X -= 0.4 * centers[types[500:]]
    for adata, shift in ((query, False), (moved, "clusters")):
        dice.tl.denoise(adata, reference, rho=0, likelihood=dice.Gaussian(0.3), shift=shift)
    left = dice.tl.denoise(moved, reference, rho=0, copy=True, likelihood=dice.Gaussian(0.3), shift=False)
    assert moved.uns["X_dice"]["shift"]["strategy"] == "clusters"
    assert moved.uns["X_dice"]["shift"]["offset"].shape == (1, 45, 6)
    wanted = query.obsm["X_dice"]
    assert error(moved.obsm["X_dice"], wanted) < 0.5 * error(left.obsm["X_dice"], wanted)


def test_priors_without_soft_clusters_do_without(query, reference):
    old = {name: value for name, value in reference.uns["dice"].items() if name not in ("soft_clusters", "sha256")}
    reference.uns["dice"] = old | {"sha256": checksum(old)}
    with pytest.raises(dice.DiceError, match="needs a prior with soft clusters"):
        dice.tl.denoise(query, reference, shift="clusters")
    dice.tl.transfer_labels(query, reference, "cell_type")
    assert "clusters" not in set(query.uns["cell_type_dice"]["views"]["view"])


def test_rho_is_half_the_scale_whatever_the_shift(query, reference):
    scale = dice.Prior.from_anndata(reference).latent_scale
    apart, _ = shifted(query, reference)
    for cells, shift in ((query, "auto"), (query[:2].copy(), "auto"), (apart, "auto"), (apart, False)):
        dice.tl.denoise(cells, reference, shift=shift)
        assert cells.uns["X_dice"]["params"]["rho"] == pytest.approx(scale / 2)
    for options, rho in (({"rho": 30}, 30), ({"method": "gibbs"}, scale / 2)):
        dice.tl.denoise(apart, reference, shift=False, **options)
        assert apart.uns["X_dice"]["params"]["rho"] == pytest.approx(rho)


@pytest.mark.parametrize("types", [slice(None), slice(0, 3)])
def test_a_shifted_query_comes_back(query, reference, types):
    """Also where it holds only some of the cell types."""
    kept = np.unique(query.obs["cell_type"])[types]
    query = query[query.obs["cell_type"].isin(kept)].copy()
    moved, delta = shifted(query, reference)
    dice.tl.denoise(query, reference, rho=30)
    dice.tl.denoise(moved, reference, rho=30, shift="offset")
    record = moved.uns["X_dice"]["shift"]
    assert record["strategy"] == "offset"
    np.testing.assert_allclose(record["offset"][0, 0], delta, atol=0.15 * np.linalg.norm(delta))
    left = moved.copy()
    dice.tl.denoise(left, reference, rho=30, shift=False)
    wanted = query.obsm["X_dice"]
    assert error(moved.obsm["X_dice"], wanted) < 0.35 * error(left.obsm["X_dice"], wanted)


def test_batches_are_shifted_each_on_its_own(query, reference):
    moved, delta = shifted(query, reference)
    moved.X[::2] = query.X[::2]
    moved.obs["run"] = np.where(np.arange(query.n_obs) % 2 == 0, "clean", "moved")
    dice.tl.denoise(moved, reference, rho=30, shift=dice.Shift("offset", batch_key="run"))
    record = moved.uns["X_dice"]["shift"]
    assert list(record["batches"]) == ["clean", "moved"]
    assert np.linalg.norm(record["offset"][0]) < 0.25 * np.linalg.norm(delta)
    assert np.linalg.norm(record["offset"][1] - delta) < 0.25 * np.linalg.norm(delta)


def test_a_batch_without_sampled_cells_is_shifted_like_the_others():
    """Its cells express nothing, so that none of them tells of a shift."""
    cells = dice.datasets.pbmc68k()
    reference, query = cells[:500].copy(), cells[500:560].copy()
    dice.tl.train_prior(reference, n_latent=10, preset="gmm")
    query.X = query.X.toarray()
    query.X[50:] = 0
    query.obs["run"] = np.where(np.arange(60) < 50, "full", "nothing")
    with pytest.warns(dice.DiceWarning, match="10 cells express no gene"):
        dice.tl.denoise(query, reference, shift=dice.Shift("mean", batch_key="run"))
    record = query.uns["X_dice"]["shift"]
    assert record["offset"].shape == (2, 1, 10)
    # Both are drawn to the offset of the whole query by 20 cells, and the second has none of its own.
    np.testing.assert_allclose(record["offset"][1], record["offset"][0] * 70 / 90, rtol=1e-4)
    assert np.isfinite(query.obsm["X_dice"]).all()


def test_the_mean_can_be_asked_for(query, reference):
    moved, _ = shifted(query, reference)
    dice.tl.denoise(moved, reference, shift="mean")
    raw = moved.obsm["X_dice_pca"].mean(0)
    np.testing.assert_allclose(moved.uns["X_dice"]["shift"]["offset"][0, 0], raw * 400 / 420, rtol=1e-3, atol=0.05)


@pytest.mark.parametrize("likelihood", [dice.StudentT(per_gene=True, noise=1.0), dice.Gaussian(1.0)], ids=str)
def test_chains_start_from_the_shifted_query(query, reference, likelihood):
    few = query[:20].copy()
    moved, _ = shifted(few, reference)
    settings = {"rho": 30, "method": dice.Gibbs(n_iterations=5), "likelihood": likelihood}
    dice.tl.denoise(few, reference, shift=False, **settings)
    dice.tl.denoise(moved, reference, shift="offset", **settings)
    left = dice.tl.denoise(moved, reference, copy=True, shift=False, **settings)
    wanted = few.obsm["X_dice"]
    assert error(moved.obsm["X_dice"], wanted) < 0.7 * error(left.obsm["X_dice"], wanted)


def test_order_and_chunks_do_not_matter(query, reference):
    moved, _ = shifted(query, reference)
    order = np.random.default_rng(0).permutation(moved.n_obs)
    other = moved[order].copy()
    dice.tl.denoise(moved, reference, shift="offset")
    with dice.settings.using(chunk_size=57):
        dice.tl.denoise(other, reference, shift="offset")
    np.testing.assert_allclose(other.obsm["X_dice"], moved.obsm["X_dice"][order], rtol=1e-4, atol=1e-2)


def test_dask_and_files_are_shifted_alike(query, reference, tmp_path):
    import dask.array as da

    moved, _ = shifted(query, reference)
    lazy = ad.AnnData(da.from_array(moved.X, chunks=(130, -1)), obs=moved.obs[[]].copy(), var=moved.var.copy())
    dice.tl.denoise(moved, reference, shift="offset")
    dice.tl.denoise(lazy, reference, shift="offset")
    np.testing.assert_allclose(np.asarray(lazy.obsm["X_dice"]), moved.obsm["X_dice"], rtol=1e-4, atol=1e-2)
    dice.tl.denoise_to_zarr(moved, reference, tmp_path / "out.zarr", shift="offset")
    stored = ad.read_zarr(tmp_path / "out.zarr")
    np.testing.assert_allclose(stored.obsm["X_dice"], moved.obsm["X_dice"], rtol=1e-4, atol=1e-2)
    assert stored.uns["X_dice"]["shift"]["strategy"] == "offset"


def test_samples_are_drawn_again_as_they_were(query, reference):
    """The neighbour graph draws samples with the stored call."""
    moved, _ = shifted(query, reference)
    dice.tl.denoise(moved, reference, shift="offset")
    dice.tl.neighbors(moved, reference, n_samples=2)
    dice.tl.denoise(moved, reference, n_samples=2, shift="offset")
    again = dice.tl.neighbors(moved, n_samples=2, copy=True)
    difference = abs(again.obsp["dice_neighbors_connectivities"] - moved.obsp["dice_neighbors_connectivities"])
    assert difference.max() < 1e-6


@pytest.mark.parametrize("size", [2.0, 3.0])
def test_small_offsets_are_found_too(query, reference, size):
    moved, _ = shifted(query, reference, size)
    dice.tl.denoise(query, reference, shift=False)
    dice.tl.denoise(moved, reference, shift="offset")
    left = dice.tl.denoise(moved, reference, copy=True, shift=False)
    wanted = query.obsm["X_dice"]
    assert moved.uns["X_dice"]["shift"]["strategy"] == "offset"
    assert error(moved.obsm["X_dice"], wanted) < 0.5 * error(left.obsm["X_dice"], wanted)


def test_a_part_of_the_cells_keeps_the_shift_of_all(query, reference):
    """On its own it might be shifted differently, or not at all."""
    moved, _ = shifted(query, reference)
    moved.obs["run"] = np.where(np.arange(query.n_obs) < 300, "one", "two")
    dice.tl.denoise(moved, reference, shift=dice.Shift("offset", batch_key="run"))
    some = moved[295:305].copy()
    record = moved.uns["X_dice"]["shift"]
    dice.tl.denoise(some, reference, shift=record)
    np.testing.assert_allclose(some.uns["X_dice"]["shift"]["offset"], record["offset"])
    samples = posterior_samples(some, reference, 20, "X_dice")
    spread = moved.obs["dice_uncertainty"].mean()
    assert np.sqrt(np.square(samples.mean(1) - moved.obsm["X_dice"][295:305]).mean()) < 0.5 * spread
    with pytest.raises(dice.DiceError, match="pass the batch_key of the call"):
        dice.tl.denoise(some, reference, shift={k: v for k, v in record.items() if k != "batch_key"})
    with pytest.raises(dice.DiceError, match="do not fit the prior"):
        dice.tl.denoise(some, reference, shift={"strategy": "offset", "offset": np.zeros((1, 1, 3))})


def test_labels_say_how_the_query_was_shifted(query, reference):
    dice.tl.transfer_labels(query, reference, "cell_type")
    assert query.uns["cell_type_dice"]["shift"]["strategy"] == "clusters"
    dice.tl.transfer_labels(query, reference, "cell_type", shift=query.uns["cell_type_dice"]["shift"])
    assert list(query.uns["cell_type_dice"]["views"]["view"]) == ["stored"]


def test_the_sample_is_the_same_in_any_order(query, reference):
    prior, options = dice.Prior.from_anndata(reference), Options()
    forth, back = (Query.of(cells, prior, options) for cells in (query, query[::-1].copy()))
    np.testing.assert_array_equal(forth.matrix.names[forth.order], back.matrix.names[back.order])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"shift": "scale"}, "`shift` must be one of .*got 'scale'"),
        ({"shift": None}, "`shift` must be one of .*got None"),
        ({"shift": dice.Shift(batch_key="run")}, "There is no column 'run' in adata.obs"),
        ({"shift": dice.Shift(batch_key="half")}, "cells have no value in adata.obs|names no batch"),
    ],
)
def test_bad_input_is_one_sentence(query, reference, arguments, sentence):
    query.obs["half"] = np.where(np.arange(query.n_obs) % 2 == 0, "a", None)
    with pytest.raises(dice.DiceError, match=sentence):
        dice.tl.denoise(query, reference, **arguments)
    assert "X_dice" not in query.obsm


@pytest.mark.parametrize("wrong", [{}, {"strategy": "offset"}, {"strategy": "offset", "offset": "hello"}, {"call": 1}])
def test_other_tables_are_not_taken_for_a_shift(query, reference, wrong):
    with pytest.raises(dice.DiceError, match=r"stored with it in query.uns\['X_dice'\]\['shift'\]"):
        dice.tl.denoise(query, reference, shift=wrong)


def test_batches_that_read_the_same_are_refused(query, reference):
    query.obs["batch"] = np.array([1, "1"], dtype=object)[np.arange(query.n_obs) % 2]
    with pytest.raises(dice.DiceError, match="different values with the same text"):
        dice.tl.denoise(query, reference, shift=dice.Shift(batch_key="batch"))
