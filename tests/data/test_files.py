"""Elements of files, opened lazily."""

from __future__ import annotations

import os
import shutil

import anndata as ad
import h5py
import numpy as np
import pytest
import stored_priors
import zarr
from scipy import sparse

import dice
from dice._data.door import opened
from dice._data.files import _lazy, read
from dice._errors import InputError

VALUES = np.random.default_rng(0).poisson(0.5, size=(12, 5)).astype(np.float32)


@pytest.fixture(params=["h5ad", "zarr"])
def group(request, tmp_path):
    adata = ad.AnnData(VALUES, layers={"rows": sparse.csr_array(VALUES), "columns": sparse.csc_array(VALUES)})
    adata.obsm["Z"], adata.obsm["cube"] = VALUES, np.zeros((12, 2, 3))
    adata.uns["text"], adata.uns["number"] = np.array(["a", "b"]), 3.0
    path = tmp_path / f"cells.{request.param}"
    if request.param == "h5ad":
        adata.write_h5ad(path)
        with h5py.File(path) as file:
            yield file
    else:
        adata.write_zarr(path)
        yield zarr.open_group(path, mode="r")


@pytest.mark.parametrize(
    ("name", "chunks"),
    [
        ("X", ((5, 5, 2), (5,))),
        ("obsm/Z", ((5, 5, 2), (5,))),
        ("obsm/cube", ((5, 5, 2), (2,), (3,))),
        ("layers/rows", ((5, 5, 2), (5,))),
        ("layers/columns", ((12,), (5,))),
    ],
)
def test_matrices_are_lazy(group, name, chunks):
    found = _lazy(group[name], 5, 12)
    assert found.chunks == chunks
    values = found.compute()
    values = values.toarray() if sparse.issparse(values) else values
    np.testing.assert_array_equal(values, np.zeros((12, 2, 3)) if name == "obsm/cube" else VALUES)


def test_all_else_is_in_memory(group):
    assert list(_lazy(group["uns/text"], 5, 12)) == ["a", "b"]
    assert _lazy(group["uns/number"], 5, 12) == 3.0


def test_few_columns_fill_a_block(group, monkeypatch):
    """Columns of a matrix of no cells are read at once."""
    monkeypatch.setattr("dice._data.files.BLOCK_ENTRIES", 24)
    assert _lazy(group["layers/columns"], 5, 12).chunks == ((12,), (2, 2, 1))
    monkeypatch.setattr("dice._data.files.BLOCK_ENTRIES", 3)
    assert _lazy(group["layers/columns"], 5, 12).chunks == ((12,), (1,) * 5)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array])
def test_no_cells(kind, tmp_path):
    ad.AnnData(kind(VALUES[:0])).write_zarr(tmp_path / "empty.zarr")
    assert _lazy(zarr.open_group(tmp_path / "empty.zarr", mode="r")["X"], 5, 0).shape == (0, 5)


def test_what_cannot_be_opened_is_one_sentence(tmp_path):
    with (
        pytest.raises(InputError, match=r"There is no file .*: pass the path of a query"),
        opened(tmp_path / "none.h5ad", "a query", InputError),
    ):
        pass
    (tmp_path / "odd.h5ad").write_text("no HDF5")
    with (
        pytest.raises(dice.DiceError, match=r"cannot be read as .h5ad or .zarr: "),
        opened(tmp_path / "odd.h5ad", "a query", InputError),
    ):
        pass


@pytest.mark.parametrize("size", [300, 900, 1500])
def test_a_backed_query_whose_file_was_cut_short_is_one_sentence(tmp_path, size):
    """The look for raw counts came before the look at the file, and ended in an error of h5py's."""
    stored_priors.cells(60).write_h5ad(tmp_path / "query.h5ad")
    backed = ad.read_h5ad(tmp_path / "query.h5ad", backed="r")
    os.truncate(tmp_path / "query.h5ad", size)
    with pytest.raises(dice.DiceError):
        dice.tl.denoise(backed, stored_priors.path("plain"))
    backed.file.close()


FORGED = {
    "beyond": ("indices", 3, 10**8),
    "negative": ("indices", 3, -(10**7)),
    "just beyond": ("indices", 3, 20),
    "rows beyond": ("indptr", 2, 2 * 10**9),
    "rows backwards": ("indptr", 2, 0),
}


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_matrix])
@pytest.mark.parametrize("part", FORGED)
def test_a_sparse_matrix_with_values_outside_of_it_is_refused(kind, part, tmp_path):
    """scipy takes positions as they are, and the process ended in a segmentation fault."""
    name, place, value = FORGED[part]
    value = 20 if part == "just beyond" and kind is sparse.csr_matrix else 30 if part == "just beyond" else value
    prior, cells = dice.Prior.load(stored_priors.path("plain")), stored_priors.cells(30)
    cells.X = kind(cells.X)
    cells.layers["other"] = cells.X.copy()
    cells.write_h5ad(tmp_path / "cells.h5ad")
    for slot in ("X", "layers/other"):
        shutil.copy(tmp_path / "cells.h5ad", tmp_path / "forged.h5ad")
        with h5py.File(tmp_path / "forged.h5ad", "a") as file:
            file[slot][name][place] = value
        with pytest.raises(dice.DiceError, match="its indices exceed its shape"):
            read(tmp_path / "forged.h5ad")
        layer = None if slot == "X" else "other"
        backed = ad.read_h5ad(tmp_path / "forged.h5ad", backed="r")
        for query in (dice.read_lazy(tmp_path / "forged.h5ad"), backed):
            with pytest.raises(dice.DiceError, match=r"its indices exceed its shape|cannot be read"):
                dice.tl.denoise(query, prior, layer=layer, check=False)
        backed.file.close()
