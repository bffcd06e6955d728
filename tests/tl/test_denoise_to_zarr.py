"""Denoising from file to file."""

from __future__ import annotations

import errno
import os

import anndata as ad
import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import dice
from dice._data.read import names

KEYS = ("X_dice", "X_dice_pca", "X_dice_samples")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Folder with a prior and 400 sparse cells in files of several kinds, and what denoising in memory gives."""
    folder = tmp_path_factory.mktemp("files")
    cells = dice.datasets.pbmc68k()
    cells.X = sparse.csr_matrix(cells.X)
    cells.layers["same"] = cells.X.copy()
    reference, query = cells[400:].copy(), cells[:400].copy()
    dice.tl.train_prior(reference, n_latent=6, training=dice.Training(max_steps=50), mixup=None)
    dice.Prior.from_anndata(reference).save(folder / "prior.h5ad")
    query.write_h5ad(folder / "csr.h5ad")
    query.write_zarr(folder / "csr.zarr")
    query.X = query.X.tocsc()
    query.write_h5ad(folder / "csc.h5ad")
    query.X = query.X.toarray()
    query.write_zarr(folder / "dense.zarr")
    return folder, query, dice.tl.denoise(query, reference, n_samples=2, copy=True)


def same(path, expected, keys=KEYS):
    found = ad.read_zarr(path)
    for key in keys:
        np.testing.assert_allclose(found.obsm[key], expected.obsm[key], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(found.obs["dice_uncertainty"], expected.obs["dice_uncertainty"], rtol=1e-4)
    return found


@pytest.mark.parametrize("chunk_size", [None, 64])
@pytest.mark.parametrize("name", ["csr.h5ad", "csr.zarr", "csc.h5ad", "dense.zarr"])
def test_files_equal_memory(files, name, chunk_size, tmp_path):
    folder, query, expected = files
    dice.tl.denoise_to_zarr(
        folder / name, folder / "prior.h5ad", tmp_path / "out.zarr", n_samples=2, chunk_size=chunk_size
    )
    found = same(tmp_path / "out.zarr", expected)
    assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]
    np.testing.assert_array_equal(found.X.toarray() if sparse.issparse(found.X) else found.X, query.X)
    assert set(found.layers) == set(query.layers)
    assert set(found.obsm) == set(expected.obsm)
    assert found.obs.drop(columns="dice_uncertainty").equals(query.obs)
    assert found.uns["X_dice"]["params"]["noise"] == pytest.approx(expected.uns["X_dice"]["params"]["noise"])
    assert set(found.uns) == set(expected.uns)


def lazy(query):
    blocks = da.from_array(np.asarray(query.X), chunks=((90, 10, 300), -1)).map_blocks(sparse.csr_matrix)
    return ad.AnnData(blocks, obs=query.obs, var=query.var)


@pytest.mark.parametrize("kind", [lambda query: query, lambda query: ad.AnnData(query.X, query.obs, query.var), lazy])
def test_objects_equal_files(files, kind, tmp_path):
    folder, query, expected = files
    cells = kind(query.copy())
    before = set(cells.obsm), set(cells.obs)
    dice.tl.denoise_to_zarr(
        cells, folder / "prior.h5ad", tmp_path / "out.zarr", n_samples=2, chunk_size=64, copy_x=False
    )
    found = same(tmp_path / "out.zarr", expected)
    assert found.X is None
    assert not names(found, "layers")
    assert (set(cells.obsm), set(cells.obs)) == before


@pytest.mark.parametrize(
    "options",
    [
        {"likelihood": dice.StudentT(per_gene=True), "method": dice.Gibbs(n_iterations=3)},
        {"layer": "same", "method": dice.Direct(uncertainty=False)},
    ],
    ids=["chain", "layer"],
)
def test_options(files, options, tmp_path):
    folder, query, _ = files
    expected = dice.tl.denoise(query, folder / "prior.h5ad", copy=True, **options)
    dice.tl.denoise_to_zarr(
        folder / "csr.zarr", folder / "prior.h5ad", tmp_path / "out.zarr", chunk_size=90, copy_x=False, **options
    )
    found = ad.read_zarr(tmp_path / "out.zarr")
    np.testing.assert_allclose(found.obsm["X_dice"], expected.obsm["X_dice"], atol=1e-5, rtol=1e-5)
    assert ("dice_uncertainty" in found.obs) == ("dice_uncertainty" in expected.obs)


def test_an_existing_store_is_replaced_on_request_only(files, tmp_path):
    folder, _, expected = files
    arguments = (folder / "csr.zarr", folder / "prior.h5ad", tmp_path / "out.zarr")
    dice.tl.denoise_to_zarr(*arguments)
    with pytest.raises(dice.DiceError, match="exists already"):
        dice.tl.denoise_to_zarr(*arguments)
    dice.tl.denoise_to_zarr(*arguments, overwrite=True, n_samples=2, key_added="X_other")
    found = ad.read_zarr(tmp_path / "out.zarr")
    assert "X_dice" not in found.obsm
    np.testing.assert_allclose(found.obsm["X_other_samples"], expected.obsm["X_dice_samples"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EPERM])
def test_a_disk_that_refuses_is_told_and_leaves_nothing(files, reason, tmp_path, monkeypatch):
    def refuse(draft, target):
        raise OSError(reason, "refused")

    folder = files[0]
    monkeypatch.setattr("dice._files.replace_store", refuse)
    with pytest.raises(dice.DiceError, match=rf"\({os.strerror(reason)}\): pass a path in a folder"):
        dice.tl.denoise_to_zarr(folder / "csr.zarr", folder / "prior.h5ad", tmp_path / "out.zarr", chunk_size=64)
    assert not list(tmp_path.iterdir())


def test_errors_are_one_sentence_and_leave_nothing(files, tmp_path):
    folder, query, _ = files
    (tmp_path / "text.h5ad").write_text("no cells")
    broken = query.copy()
    broken.X[7, 5] = np.nan
    cases = [
        (tmp_path / "none.h5ad", "out.zarr", {}, "There is no file"),
        (tmp_path / "text.h5ad", "out.zarr", {}, "cannot be read as .h5ad or .zarr"),
        (query, "no/folder/out.zarr", {}, "name a store in a writable folder"),
        (query, "out.zarr", {"rho": -3}, "`rho` must be .*got -3"),
    ]
    for source, output, options, message in cases:
        with pytest.raises(dice.DiceError, match=message) as caught:
            dice.tl.denoise_to_zarr(source, folder / "prior.h5ad", tmp_path / output, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="sigma"):
        dice.tl.denoise_to_zarr(query, folder / "prior.h5ad", tmp_path / "out.zarr", sigma=3)
    with pytest.raises(dice.DiceError, match=r"1 cells hold NaN"):
        dice.tl.denoise_to_zarr(broken, folder / "prior.h5ad", tmp_path / "out.zarr", check=False)
    assert not (tmp_path / "out.zarr").exists()
