"""Blocks of rows and columns from every kind of matrix, and when they are read."""

from __future__ import annotations

from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

from dice._data.lazy import computed
from dice._data.sources import (
    BadValuesError,
    CompressedRows,
    Rules,
    by_columns,
    clean,
    float32_copy,
    is_lazy,
    rows_of_columns,
)

RNG = np.random.default_rng(0)
DENSE = RNG.poisson(0.5, size=(23, 11)).astype(np.float32)


def counted(computed, chunks):
    """A dask array that tells of each block that is computed."""

    def block(values, block_info=None):
        computed.append(tuple(block_info[0]["chunk-location"]))
        return values

    return da.map_blocks(block, da.from_array(DENSE, chunks=chunks), dtype=DENSE.dtype)


def test_lazy_blocks_are_computed_one_by_one():
    told = []
    blocks = computed(counted(told, (10, 11)))
    told.clear()
    for number, (block, rows) in enumerate(blocks):
        np.testing.assert_array_equal(block, DENSE[rows])
        assert told == [(n, 0) for n in range(number + 1)]
    assert rows == slice(20, 23)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_blocks_are_float32_in_memory_of_their_own(kind):
    block = kind(DENSE.astype(np.float64))
    for genes in (None, np.array([3, 0])):
        chunk = clean(block, genes, 0, Rules())
        assert chunk.dtype == np.float32
        plain = chunk.toarray() if sparse.issparse(chunk) else chunk
        np.testing.assert_array_equal(plain, DENSE if genes is None else DENSE[:, genes])
    chunk = float32_copy(block)
    (chunk.data if sparse.issparse(chunk) else chunk)[...] = -1
    np.testing.assert_array_equal(block.toarray() if sparse.issparse(block) else block, DENSE)


def test_entries_that_are_stored_twice_are_added():
    twice = sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    assert float32_copy(twice).nnz == 1
    assert float32_copy(twice)[0, 1] == 3


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_cells_that_are_not_finite_are_named(kind, value):
    cells = DENSE.astype(np.float64)
    cells[[4, 9], [2, 5]] = value
    with pytest.raises(BadValuesError) as caught:
        clean(kind(cells), None, 100, Rules())
    assert caught.value.args[0].tolist() == [104, 109]
    assert caught.value.args[1].tolist() == [2, 5]
    assert clean(kind(cells), np.array([0, 1]), 0, Rules()).shape == (23, 2)


def test_what_is_lazy_and_what_is_stored_by_columns():
    lazy = da.from_array(DENSE, chunks=(10, 11))
    assert is_lazy(lazy)
    for other in (DENSE, SimpleNamespace(chunks=(5, 5)), SimpleNamespace(compute=print), sparse.csr_array(DENSE)):
        assert not is_lazy(other)
    assert not by_columns(lazy)
    assert by_columns(da.from_array(DENSE, chunks=(23, 4)))
    assert not by_columns(da.from_array(DENSE, chunks=(10, 4)))
    assert not by_columns(da.from_array(DENSE, chunks=(23, 11)))
    assert by_columns(sparse.csc_array(DENSE))
    assert not by_columns(sparse.csr_array(DENSE))
    assert not by_columns(DENSE)


@pytest.mark.parametrize("kind", [sparse.csc_array, lambda x: da.from_array(x, chunks=(23, 4))])
def test_columns_turned_around(kind):
    genes = np.array([1, 2, 7, 10])
    turned = rows_of_columns(kind(DENSE), genes)
    assert turned.shape == (23, 4)
    np.testing.assert_array_equal(turned.toarray(), DENSE[:, genes])
    np.testing.assert_array_equal(turned[5:9].toarray(), DENSE[5:9, genes])
    np.testing.assert_array_equal(
        rows_of_columns(kind(DENSE), np.arange(11), np.array([0, 22, 7])).toarray(), DENSE[[0, 22, 7]]
    )


def test_rows_of_compressed_matrices():
    rows = CompressedRows.of(sparse.csr_array(DENSE))
    part = rows[3:9]
    assert part.shape == (6, 11)
    np.testing.assert_array_equal(part.toarray(), DENSE[3:9])
    assert rows[5:5].shape == (0, 11)


def test_columns_are_read_in_blocks(monkeypatch):
    genes = np.array([0, 3, 4, 10])
    for entries in (1, 23, 100):
        monkeypatch.setattr("dice._data.sources.BLOCK_ENTRIES", entries)
        np.testing.assert_array_equal(rows_of_columns(sparse.csc_array(DENSE), genes).toarray(), DENSE[:, genes])
    assert rows_of_columns(sparse.csc_array(DENSE), genes[:0]).shape == (23, 0)
