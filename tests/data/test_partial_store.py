"""A query cut into the chunks of its store."""

from __future__ import annotations

import anndata as ad
import dask.array as da
import numpy as np
import pytest

from dice._data.files import in_chunks
from dice._data.read import names

VALUES = np.arange(60, dtype=np.float32).reshape(12, 5)


def lazy(chunks):
    return da.from_array(VALUES, chunks=chunks)


@pytest.mark.parametrize("chunks", [(12, 5), (5, 5), (3, 2)])
def test_lazy_matrices_get_blocks_of_so_many_cells(chunks):
    adata = ad.AnnData(lazy(chunks), layers={"counts": lazy((2, 5)), "other": lazy((2, 5)), "plain": VALUES})
    adata.obs["batch"], adata.obs["more"] = list("ab" * 6), 1
    cut = in_chunks(adata, 4, None, "counts", "batch")
    assert cut.X.chunks == ((4, 4, 4), (5,))
    assert cut.layers["counts"].chunks == ((4, 4, 4), (5,))
    assert (names(cut, "layers"), list(cut.obs)) == (["counts"], ["batch"])
    np.testing.assert_array_equal(cut.X.compute(), VALUES)
    assert names(in_chunks(adata, 4, None, "plain", None), "layers") == ["plain"]


def test_a_layer_in_place_of_x():
    adata = ad.AnnData(VALUES, layers={"lazy": lazy((5, 5))})
    cut = in_chunks(adata, 6, "lazy", None, None)
    assert cut.X is None
    assert cut.layers["lazy"].chunks == ((6, 6), (5,))


def test_what_is_in_memory_or_stored_by_columns_stays():
    for matrix in (VALUES, lazy((12, 2))):
        adata = ad.AnnData(matrix)
        assert in_chunks(adata, 4, None, None, None) is adata
