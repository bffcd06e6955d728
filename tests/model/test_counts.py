"""Counts and depth come back out of log-normalised values."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from dice._model.counts import normalised, recover

DATA = [
    "bmmc_neurips_cite",
    "pbmc_teaseq",
    "pbmc_liu_covid_citeseq",
    "pancreas_cellhint_atlas",
    "pancreas_baron_h1",
]


def counted(n=50, d=200, depth=3.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(depth * rng.gamma(0.3, size=d), size=(n, d)).astype(np.float32)


@pytest.mark.parametrize("target_sum", [1e4, 1e6, 100.0, None])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_counts_come_back_exactly(target_sum, kind):
    counts = counted()
    cells = ad.AnnData(sparse.csr_matrix(counts))
    sc.pp.normalize_total(cells, target_sum=target_sum)
    sc.pp.log1p(cells)
    found = recover(kind(cells.X.toarray()))
    assert found.whole.all()
    np.testing.assert_array_equal(found.counts.toarray(), counts)
    total = np.median(counts.sum(1)) if target_sum is None else target_sum
    np.testing.assert_allclose(found.factor, total / counts.sum(1), rtol=1e-4)
    np.testing.assert_allclose(found.log_depth, np.log(counts.sum(1) / total), atol=1e-4)


@given(st.integers(0, 10_000), st.floats(0.5, 50), st.floats(1, 1e6))
@settings(max_examples=40, deadline=None)
def test_any_depth_and_any_target_sum(seed, depth, target_sum):
    counts = counted(8, 60, depth, seed)
    values = np.log1p(counts * (target_sum / np.maximum(counts.sum(1, keepdims=True), 1))).astype(np.float32)
    found = recover(values)
    ones = (counts == 1).any(1) | ~counts.any(1)
    assert found.whole[ones].all()
    np.testing.assert_array_equal(found.counts.toarray()[ones], counts[ones])


def test_genes_that_were_left_out_do_not_matter():
    counts = counted(d=400)
    values = np.log1p(counts * (1e4 / counts.sum(1, keepdims=True)))[:, 100:].astype(np.float32)
    found = recover(values)
    np.testing.assert_array_equal(found.counts.toarray(), counts[:, 100:])
    np.testing.assert_allclose(found.log_depth, np.log(counts.sum(1) / 1e4), atol=1e-4)


def test_cells_without_a_single_count_are_solved_by_their_next_ones():
    counts = np.array([[2, 3, 0, 5, 8], [3, 6, 4, 0, 9], [5, 10, 15, 0, 0]], dtype=np.float32)
    found = recover(np.log1p(counts * 7.5).astype(np.float32))
    np.testing.assert_array_equal(found.counts.toarray()[:2], counts[:2])
    # Multiples of five are told from ones by nobody.
    np.testing.assert_array_equal(found.counts.toarray()[2], counts[2] / 5)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x - x.mean(0),
        lambda x: x + 0.01 * np.random.default_rng(0).normal(size=x.shape),
        lambda x: x * np.random.default_rng(0).uniform(0.8, 1.2, size=x.shape[1]),
        np.log1p,
        lambda x: x / np.log(2),
    ],
    ids=["centred", "noisy", "corrected", "twice", "log2"],
)
def test_other_values_are_no_counts(change):
    values = np.log1p(counted() * 11.0)
    found = recover(change(values).astype(np.float32))
    assert found.whole.mean() < 0.1
    assert np.isnan(found.log_depth).mean() > 0.9


@pytest.mark.parametrize("value", [800.0, np.nan])
def test_a_value_that_no_exponential_holds_is_no_count(value):
    values = np.log1p(counted() * 3.0)
    values[5, 0] = value
    with np.errstate(all="raise", under="ignore", divide="ignore", invalid="ignore"):
        found = recover(values.astype(np.float32))
    assert np.flatnonzero(~found.whole).tolist() == [5]


def test_empty_cells_are_whole_and_have_no_depth():
    values = np.log1p(counted() * 3.0)
    values[3] = 0
    found = recover(sparse.csr_array(values.astype(np.float32)))
    assert found.whole.all()
    assert np.flatnonzero(np.isnan(found.log_depth)).tolist() == [3]


def test_each_cell_by_itself():
    values = np.log1p(counted() * 3.0).astype(np.float32)
    whole, parts = recover(values), [recover(values[i : i + 7]) for i in range(0, 50, 7)]
    np.testing.assert_array_equal(whole.factor, np.concatenate([part.factor for part in parts]))


def test_the_input_is_not_changed():
    values = sparse.csr_array(np.log1p(counted() * 3.0).astype(np.float32))
    values.data[:5] = 0  # Stored zeros.
    before = values.data.copy()
    recover(values)
    np.testing.assert_array_equal(values.data, before)


def test_normalising_is_the_inverse():
    values = np.log1p(counted() * 3.0).astype(np.float32)
    found = recover(values)
    np.testing.assert_allclose(normalised(found.counts, found.factor).toarray(), values, atol=1e-5)


@pytest.mark.data
@pytest.mark.parametrize("name", DATA)
def test_real_counts_come_back_exactly(shared_data, name):
    cells = ad.read_h5ad(shared_data(name))[::7].copy()
    counts = sparse.csr_matrix(cells.X, dtype=np.float32)
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    sc.pp.highly_variable_genes(cells, n_top_genes=min(1500, cells.n_vars))
    genes = cells.var["highly_variable"].to_numpy()
    found = recover(cells.X[:, genes])
    assert found.whole.all()
    assert abs(found.counts - counts[:, genes]).max() == 0


@pytest.mark.data
def test_cells_that_were_published_as_logarithms(shared_data):
    found = recover(ad.read_h5ad(shared_data("pbmc_symphony_3chem")).X)
    assert found.whole.all()
