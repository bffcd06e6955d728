"""Denoising from file to file, also when it is killed on the way."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from functools import partial

import anndata as ad
import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import dice
from dice._data.files import Draft, IntoDraft
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
    # Blocks of uneven size, none of them a chunk of the store.
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


#: Kills its own process like `kill -9`, at the third chunk of a phase: within its writing, or right after it.
KILL = """
import os, signal, sys
import dask
import dice
from dice._data.files import Draft
phase, moment, folder, output = sys.argv[1:]
mark, array, marks, writes = Draft.mark, Draft.array, [], []
def killing_mark(self, at, start):
    marks.append(at)
    mark(self, at, start)
    if at == phase and marks.count(phase) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
def killing_array(self, name):
    if marks.count(phase) == 2 and moment == "between arrays" and name.startswith("scratch"):
        os.kill(os.getpid(), signal.SIGKILL)
    return array(self, name)
Draft.mark, Draft.array = killing_mark, killing_array
dice.settings.verbosity = 0
with dask.config.set(scheduler="synchronous"):
    dice.tl.denoise_to_zarr(f"{folder}/csr.zarr", f"{folder}/prior.h5ad", output, n_samples=2, chunk_size=64)
"""


@pytest.mark.parametrize("phase", ["project", "denoise"])
@pytest.mark.parametrize("moment", ["between arrays", "after the mark"])
def test_killed_runs_go_on(files, phase, moment, tmp_path, monkeypatch):
    folder, _, expected = files
    output = tmp_path / "out.zarr"
    command = [sys.executable, "-W", "ignore", "-c", KILL, phase, moment, str(folder), str(output)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert not output.exists()
    finished = Draft(output, 400, 64).finished(phase)
    assert len(finished) == (3 if moment == "after the mark" else 2)

    done = []
    call = IntoDraft.__call__

    def noting(self, chunk, rows):
        done.append((self.phase, rows.start))
        call(self, chunk, rows)

    monkeypatch.setattr(IntoDraft, "__call__", noting)
    dice.tl.denoise_to_zarr(folder / "csr.zarr", folder / "prior.h5ad", output, n_samples=2, chunk_size=64)
    same(output, expected)
    expected_starts = set(range(0, 400, 64))
    assert {start for at, start in done if at == phase} == expected_starts - finished
    if phase == "denoise":
        assert not [start for at, start in done if at == "project"]


def test_a_full_disk_is_told_and_the_call_goes_on_later(files, tmp_path, monkeypatch):
    folder, _, expected = files
    output, mark = tmp_path / "out.zarr", Draft.mark

    def full(self, phase, start):
        if start >= 128:
            raise OSError(errno.ENOSPC, "No space left on device")
        mark(self, phase, start)

    (tmp_path / "out.zarr.partial").write_text("in the way")
    monkeypatch.setattr(Draft, "mark", full)
    call = partial(dice.tl.denoise_to_zarr, folder / "csr.zarr", folder / "prior.h5ad", output, n_samples=2)
    with pytest.raises(dice.DiceError, match=r"\(No space left on device\): make room, or see to"):
        call(chunk_size=64)
    assert not output.exists()
    monkeypatch.setattr(Draft, "mark", mark)
    call(chunk_size=64)
    same(output, expected)


def test_a_store_that_may_not_be_replaced_is_told(files, tmp_path, monkeypatch):
    def refuse(draft, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("dice._data.files.replace_store", refuse)
    folder = files[0]
    with pytest.raises(dice.DiceError, match=r"\(Operation not permitted\): make room, or see to the rights"):
        dice.tl.denoise_to_zarr(folder / "csr.zarr", folder / "prior.h5ad", tmp_path / "out.zarr", chunk_size=64)


def test_another_call_does_not_go_on(files, tmp_path, monkeypatch):
    folder, query, _ = files
    arguments = (folder / "prior.h5ad", tmp_path / "out.zarr")
    with monkeypatch.context() as patch:
        patch.setattr(Draft, "complete", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dice.tl.denoise_to_zarr(folder / "csr.zarr", *arguments)
    other = query.copy()
    other.X[3] *= 2
    for source, options in ((folder / "csr.zarr", {"rho": 3}), (other, {}), (query[:300].copy(), {})):
        with pytest.raises(dice.DiceError, match="belongs to another call"):
            dice.tl.denoise_to_zarr(source, *arguments, **options)
    # So are the same cells in other batches.
    other = query.copy()
    other.obs["run"] = np.where(np.arange(query.n_obs) < 100, "one", "two")
    with monkeypatch.context() as patch:
        patch.setattr(Draft, "complete", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dice.tl.denoise_to_zarr(other, arguments[0], tmp_path / "batches.zarr", shift=dice.Shift(batch_key="run"))
    other.obs["run"] = other.obs["run"].to_numpy()[::-1]
    with pytest.raises(dice.DiceError, match="belongs to another call"):
        dice.tl.denoise_to_zarr(other, arguments[0], tmp_path / "batches.zarr", shift=dice.Shift(batch_key="run"))
    # The same cells in another file are the same call.
    dice.tl.denoise_to_zarr(folder / "csr.h5ad", *arguments)
    with pytest.raises(dice.DiceError, match="exists already"):
        dice.tl.denoise_to_zarr(folder / "csr.zarr", *arguments)
    dice.tl.denoise_to_zarr(folder / "csr.zarr", *arguments, overwrite=True, key_added="X_other")
    assert "X_other" in ad.read_zarr(arguments[1]).obsm


def test_errors_are_one_sentence_and_leave_nothing(files, tmp_path):
    folder, query, _ = files
    (tmp_path / "text.h5ad").write_text("no cells")
    broken = query.copy()
    broken.X[7, 5] = np.nan
    cases = [
        (tmp_path / "none.h5ad", "out.zarr", {}, "There is no file"),
        (tmp_path / "text.h5ad", "out.zarr", {}, "cannot be read as .h5ad or .zarr"),
        (query, "no/folder/out.zarr", {}, "name a store in a folder that exists"),
        (query, "out.zarr", {"sigma": 3}, "does not know this argument"),
        (query, "out.zarr", {"rho": -3}, "`rho` must be .*got -3"),
    ]
    for source, output, options, message in cases:
        with pytest.raises(dice.DiceError, match=message) as caught:
            dice.tl.denoise_to_zarr(source, folder / "prior.h5ad", tmp_path / output, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(dice.DiceError, match=r"1 cells hold NaN"):
        dice.tl.denoise_to_zarr(broken, folder / "prior.h5ad", tmp_path / "out.zarr", check=False)
    assert not (tmp_path / "out.zarr").exists()
