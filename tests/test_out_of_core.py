"""Matrices that dask holds: the same results as from memory, for any blocks and workers."""

from __future__ import annotations

import os

import anndata as ad
import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dice
from dice._data.matrix import Matrix

distributed = pytest.importorskip("distributed")

pytestmark = [
    # A cluster's ports and sockets close when the collector comes round, and its logs talk of processes that left.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CHUNKS = (50, (170, 30, 200), 400)


@pytest.fixture(scope="module")
def pair():
    """Reference with a prior, and 400 sparse query cells in memory."""
    rng = np.random.default_rng(0)
    rates = np.exp(rng.normal(-0.5, 1, size=(3, 80)))

    def cells(n, prefix):
        types = rng.integers(0, 3, n)
        counts = rng.poisson(rates[types])
        counts[:, 0] += 1
        values = np.log1p(counts / counts.sum(1, keepdims=True) * 1e4).astype(np.float32)
        obs = pd.DataFrame({"type": pd.Categorical.from_codes(types, ["a", "b", "c"])}, index=_names(prefix, n))
        return ad.AnnData(sparse.csr_matrix(values), obs=obs, var=pd.DataFrame(index=_names("gene", 80)))

    reference, query = cells(600, "reference"), cells(400, "query")
    dice.tl.train_prior(reference, n_latent=6, training=dice.Training(max_steps=100))
    return reference, query


def _names(prefix, n):
    return [f"{prefix}_{i}" for i in range(n)]


def lazy(adata, rows):
    """The same cells with a dask array of CSR blocks."""
    dense = da.from_array(adata.X.toarray(), chunks=(rows, -1))
    return ad.AnnData(dense.map_blocks(sparse.csr_matrix), obs=adata.obs.copy(), var=adata.var.copy())


@pytest.fixture(scope="module")
def cluster():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


OPTIONS = {
    "measured": {"n_samples": 3},
    "direct": {"n_samples": 3, "likelihood": "gaussian"},
    "per gene": {"likelihood": dice.Gaussian("per_gene"), "method": dice.Gibbs(n_iterations=4, fast=True)},
    "student": {"likelihood": dice.StudentT(per_gene=True), "method": dice.Gibbs(n_iterations=4)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("rows", CHUNKS, ids=str)
def test_lazy_queries_equal_those_in_memory(pair, rows, options):
    reference, query = pair
    expected = dice.tl.denoise(query, reference, copy=True, **options)
    cells = lazy(query, rows)
    with dice.settings.using(chunk_size=37):
        dice.tl.denoise(cells, reference, **options)
    for key in expected.obsm:
        found = cells.obsm[key]
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float32
        assert found.shape == expected.obsm[key].shape
        np.testing.assert_allclose(found, expected.obsm[key], atol=1e-5, rtol=1e-5)
    if "dice_uncertainty" in expected.obs:
        # The spread of a short chain is a thousandth of the latents themselves: it is known to their rounding.
        rounding = 2e-5 * float(np.std(expected.obsm["X_dice"]))
        found, known = cells.obs["dice_uncertainty"], expected.obs["dice_uncertainty"]
        np.testing.assert_allclose(found, known, rtol=1e-4, atol=rounding)
        assert "dice_uncertainty" not in cells.obsm
    assert cells.uns["X_dice"]["params"]["noise"] == pytest.approx(expected.uns["X_dice"]["params"]["noise"], rel=1e-6)


@pytest.mark.parametrize("rows", CHUNKS, ids=str)
def test_labels_of_lazy_queries_equal_those_in_memory(pair, rows):
    reference, query = pair
    expected = dice.tl.transfer_labels(query, reference, "type", copy=True)
    cells, known = lazy(query, rows), lazy(reference, rows if isinstance(rows, int) else (200, 400))
    known.uns, known.obs = reference.uns, reference.obs
    dice.tl.transfer_labels(cells, known, "type")
    np.testing.assert_allclose(cells.obsm["type_dice_prob"], expected.obsm["type_dice_prob"], atol=1e-5)
    assert (cells.obs["type_dice"].astype(str) == expected.obs["type_dice"].astype(str)).all()


def test_results_stream_into_a_store(pair, tmp_path):
    reference, query = pair
    cells = lazy(query, 100)
    dice.tl.denoise(cells, reference, n_samples=2)
    cells.write_zarr(tmp_path / "query.zarr")
    stored = ad.read_zarr(tmp_path / "query.zarr")
    dice.tl.denoise(query, reference, n_samples=2)
    for key in ("X_dice", "X_dice_pca", "X_dice_samples"):
        np.testing.assert_allclose(stored.obsm[key], query.obsm[key], atol=1e-5, rtol=1e-5)


def test_a_cluster_of_processes_gives_the_same(pair, cluster):
    reference, query = pair
    expected = dice.tl.denoise(query, reference, n_samples=2, copy=True)
    here, there = lazy(query, 60), lazy(query, 60)
    with dask.config.set(scheduler="threads"):
        dice.tl.denoise(here, reference, n_samples=2)
        alone = here.obsm["X_dice"]
    dice.tl.denoise(there, reference, n_samples=2)
    for key in expected.obsm:
        np.testing.assert_allclose(there.obsm[key], expected.obsm[key], atol=1e-5, rtol=1e-5)
    np.testing.assert_array_equal(there.obsm["X_dice"], alone)


def test_a_cluster_trains_the_same_prior(pair, cluster):
    reference, _ = pair
    priors = []
    for scheduler in ("threads", "synchronous", None):
        cells = lazy(reference, 130)
        with dask.config.set(scheduler=scheduler):
            dice.tl.train_prior(cells, n_latent=6, training=dice.Training(max_steps=20), labels_key="type")
        priors.append(dice.Prior.from_anndata(cells))
        np.testing.assert_array_equal(priors[0].projection.loadings, priors[-1].projection.loadings)
        assert cells.uns["dice"]["sha256"] == priors[0].to_arrays()["sha256"]
    expected = dice.Prior.from_anndata(reference).projection
    np.testing.assert_allclose(priors[0].projection.loadings, expected.loadings, atol=1e-5)
    np.testing.assert_allclose(priors[0].projection.singular_values, expected.singular_values, rtol=1e-5)


class Carried:
    """Stands for a prior; tells where it was unpacked."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, chunk, rows):
        return os.getpid()

    def __setstate__(self, state):
        self.__dict__.update(state)
        with (self.folder / "unpacked").open("a") as file:
            file.write(f"{os.getpid()}\n")


def test_what_a_function_carries_reaches_each_worker_once(pair, cluster, tmp_path):
    cells = lazy(pair[1], 10)
    processes = Matrix(cells).each(Carried(tmp_path))
    assert len(processes) == 40
    workers = [int(line) for line in (tmp_path / "unpacked").read_text().split() if int(line) != os.getpid()]
    assert len(workers) == len(set(workers)) <= 2
    assert set(processes) <= set(workers)


def test_a_killed_worker_loses_nothing(pair, cluster, tmp_path):
    """The first worker that meets a certain cell dies of it; dask gives its work to another one."""
    reference, query = pair
    expected = dice.tl.denoise(query, reference, copy=True)
    flag = tmp_path / "killed"

    def fatal(block, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 5 and not flag.exists():
            flag.touch()
            os._exit(1)
        return sparse.csr_matrix(block)

    dense = da.from_array(query.X.toarray(), chunks=(40, -1))
    meta = sparse.csr_matrix((0, 0), dtype=np.float32)
    cells = ad.AnnData(dense.map_blocks(fatal, meta=meta), obs=query.obs.copy(), var=query.var.copy())
    dice.tl.denoise(cells, reference, check=False)
    assert flag.exists()
    np.testing.assert_allclose(cells.obsm["X_dice"], expected.obsm["X_dice"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_values_that_are_not_finite_are_named(pair, where, request):
    reference, query = pair
    values = query.X.toarray()
    values[[123, 399], 3] = np.nan
    broken = ad.AnnData(sparse.csr_matrix(values), obs=query.obs.copy(), var=query.var.copy())
    if where == "cluster":
        request.getfixturevalue("cluster")
    for call, cells in ((dice.tl.denoise, lazy(broken, 100)), (dice.tl.train_prior, lazy(broken, 400))):
        arguments = (reference,) if call is dice.tl.denoise else ()
        with pytest.raises(dice.DiceError, match=r"cells hold NaN or infinite values, for example \['query_"):
            call(cells, *arguments)
        assert not cells.uns
        assert not cells.obsm


def test_cells_without_expression_get_the_prior(pair):
    reference, query = pair
    values = query.X.toarray()
    values[[7, 250]] = 0
    query = ad.AnnData(sparse.csr_matrix(values), obs=query.obs.copy(), var=query.var.copy())
    with pytest.warns(dice.DiceWarning, match="2 cells express no gene"):
        expected = dice.tl.denoise(query, reference, n_samples=2, copy=True)
    cells = lazy(query, 90)
    with pytest.warns(dice.DiceWarning, match=r"2 cells express no gene .* \['query_7', 'query_250'\]"):
        dice.tl.denoise(cells, reference, n_samples=2)
    assert cells.obs["dice_empty"].sum() == 2
    np.testing.assert_allclose(cells.obsm["X_dice_samples"], expected.obsm["X_dice_samples"], atol=1e-4)
    assert not np.asarray(cells.obsm["X_dice"])[7].any()


def test_no_cells_and_one(pair):
    reference, query = pair
    for n in (0, 1):
        cells = lazy(query, 100)[:n].copy()
        dice.tl.denoise(cells, reference)
        assert np.asarray(cells.obsm["X_dice"]).shape == (n, 6)
