"""Technologies that a data set mixes."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
from scipy import sparse

from dice._data.recipe import find_technologies
from dice._model.arrays import explained_by_batches


def cells(effect: float, rng: np.random.Generator) -> ad.AnnData:
    """Two types and two halves, whose genes differ by a factor."""
    profiles = rng.gamma(0.5, size=(2, 300))
    types, halves = rng.integers(2, size=400), np.arange(400) % 2
    factor = np.where(halves[:, None] == 1, rng.gamma(1 / effect, effect, size=300), 1.0)
    adata = ad.AnnData(sparse.csr_matrix(rng.poisson(profiles[types] * factor).astype(np.float32)))
    adata.obs["seq_protocol"] = np.where(halves == 1, "smart", "drop")
    adata.obs["cell_type"] = types.astype(str)
    adata.obs["batch"] = rng.integers(2, size=400).astype(str)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    return adata


def test_a_technology_is_found_by_what_it_explains():
    rng = np.random.default_rng(0)
    found = find_technologies(cells(2.0, rng))
    assert found is not None
    assert found[0] == "seq_protocol"
    assert found[1] > 0.05
    assert find_technologies(cells(1e-6, rng)) is None


def test_types_are_no_technology():
    adata = cells(1e-6, np.random.default_rng(0))
    adata.obs["sample"] = adata.obs["cell_type"]  # as if types had been sorted
    assert find_technologies(adata)[0] == "sample"
    assert find_technologies(adata, labels=adata.obs["cell_type"].astype(int).to_numpy()) is None


@pytest.mark.parametrize("change", ["name", "missing", "number", "few"])
def test_columns_that_cannot_be_batches(change):
    adata = cells(2.0, np.random.default_rng(0))
    column = adata.obs.pop("seq_protocol")
    if change == "few":
        column = np.where(np.arange(400) < 10, "other", column)
    if change == "missing":
        column = column.where(np.arange(400) > 3)
    if change == "number":
        column = (column == "drop").astype(float)
    adata.obs["weather" if change == "name" else "protocol"] = column
    assert find_technologies(adata) is None


def test_omega_squared_of_one_gene():
    """The textbook's formula for one gene and one label."""
    rng = np.random.default_rng(0)
    codes = np.arange(60) % 3
    x = rng.normal(size=60) + codes
    means = np.array([x[codes == group].mean() for group in range(3)])
    between = 20 * ((means - x.mean()) ** 2).sum()
    within = ((x - means[codes]) ** 2).sum()
    expected = (between - 2 * within / 57) / (between + within + within / 57)
    assert explained_by_batches(x[:, None], codes) == pytest.approx(expected)
    assert explained_by_batches(x[:, None], codes, codes) == 0.0


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "expected"),
    [("pancreas_cellhint_atlas", True), ("bmmc_neurips_cite", False), ("pancreas_baron_h1", False)],
)
def test_real_data_sets(name, expected, shared_data):
    adata = ad.read_h5ad(shared_data(name))
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    assert (find_technologies(adata) is not None) == expected
