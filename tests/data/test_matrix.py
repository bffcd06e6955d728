"""Reading matrices: every kind gives the same chunks, none is densified, changed or read at once."""

from __future__ import annotations

import tracemalloc
import warnings

import anndata as ad
import dask.array as da
import numpy as np
import pytest
import zarr
from anndata.experimental import read_elem_lazy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dice
from dice._data.matrix import Matrix
from dice._model.likelihood import GaussianLikelihood


def dense(chunk):
    return chunk.toarray() if sparse.issparse(chunk) else chunk


def all_cells(matrix):
    return np.concatenate([dense(chunk) for chunk in matrix])


def content(adata):
    """Bytes of everything that a matrix in memory consists of."""
    x = adata.X
    parts = (x.data, x.indices, x.indptr) if sparse.issparse(x) else (np.asarray(x),)
    return [part.tobytes() for part in parts]


def test_every_kind_gives_the_same_chunks(cells, x):
    genes = np.random.default_rng(0).permutation(x.shape[1])[:35]
    for chunk_size in (None, 1, 47):
        matrix = Matrix(cells, genes=genes, chunk_size=chunk_size)
        for chunk in matrix:
            assert chunk.dtype == np.float32
            assert isinstance(chunk, np.ndarray | sparse.csr_array)
            assert len(dense(chunk)) <= matrix.chunk_size
        np.testing.assert_array_equal(all_cells(matrix), x[:, genes])
    np.testing.assert_array_equal(all_cells(Matrix(cells, chunk_size=50)), x)


def test_every_kind_gives_the_same_latents(cells, x, prior):
    likelihood = GaussianLikelihood(prior.projection, np.arange(x.shape[1]))
    y, noise = likelihood.read(x)
    chunks = list(Matrix(cells, chunk_size=64))
    found = [likelihood.read(chunk) for chunk in chunks]
    np.testing.assert_allclose(np.concatenate([part[0] for part in found]), y, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([part[1] for part in found]), noise, atol=1e-5)
    projected = np.concatenate([prior.projection.project(chunk) for chunk in chunks])
    np.testing.assert_allclose(projected, prior.projection.project(x), atol=1e-5)


def test_every_kind_is_denoised_alike(cells, x, prior):
    plain = ad.AnnData(x, obs=cells.obs[[]].copy(), var=cells.var[[]].copy())
    dice.tl.denoise(plain, prior)
    cells = cells.copy() if cells.is_view else cells
    dice.tl.denoise(cells, prior)
    np.testing.assert_allclose(cells.obsm["X_dice"], plain.obsm["X_dice"], atol=1e-5, rtol=1e-5)


def test_every_kind_has_samples_of_all_genes(cells, x):
    sample = dense(Matrix(cells, genes=np.array([3, 1])).sample(20))
    assert sample.shape == (16, x.shape[1])
    rows = np.flatnonzero((x[:, None] == sample[None]).all(2).any(1))
    assert len(rows) == 16
    assert rows[0] == 0
    assert rows[-1] == len(x) - 1


def test_no_chunk_is_the_users_memory(cells, x):
    for chunk in (*Matrix(cells, chunk_size=40), Matrix(cells).sample()):
        (chunk.data if sparse.issparse(chunk) else chunk)[...] = -1
        if sparse.issparse(chunk):
            chunk.indices[...] = 0
    np.testing.assert_array_equal(all_cells(Matrix(cells)), x)


@pytest.mark.parametrize("convert", [np.array, sparse.csr_matrix, sparse.csc_array])
def test_input_is_untouched_to_the_byte(convert, x):
    adata = ad.AnnData(convert(x))
    if sparse.issparse(adata.X):
        # As some tools leave it: columns out of order and an entry stored in two halves.
        for part in (adata.X.indices, adata.X.data):
            part[:2] = part[1::-1]
        adata.X.has_sorted_indices = False
    before = content(adata)
    matrix = Matrix(adata, genes=np.array([5, 2, 7]), chunk_size=30)
    matrix.sample()
    np.testing.assert_array_equal(all_cells(matrix), x[:, [5, 2, 7]])
    assert content(adata) == before


def test_an_entry_stored_in_halves_counts_once(prior):
    """The sum of squares of a cell would come out wrong otherwise."""
    halves = sparse.csr_matrix((np.array([1, 1, 3], np.float32), [4, 4, 2], [0, 2, 3]), shape=(2, 60))
    chunk = next(iter(Matrix(ad.AnnData(halves))))
    assert chunk.nnz == 2
    assert halves.nnz == 3
    likelihood = GaussianLikelihood(prior.projection, np.arange(60))
    np.testing.assert_allclose(likelihood.read(chunk)[1], likelihood.read(halves.toarray())[1], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16", "bool", "float16", "float32", "float64"])
@pytest.mark.parametrize("container", ["dense", "csr", "csc"])
def test_number_types(dtype, container, tmp_path):
    values = (np.random.default_rng(0).integers(0, 2, size=(30, 8)) * 2).astype(dtype)
    stored = values
    if container != "dense":
        pattern = sparse.csr_matrix(values.astype(np.float32)).asformat(container)
        stored = type(pattern)((pattern.data.astype(dtype), pattern.indices, pattern.indptr), shape=pattern.shape)
    adata = ad.AnnData(stored)
    expected = values.astype(np.float32)[:, [3, 0]]
    for chunk_size in (None, 7):
        matrix = Matrix(adata, genes=np.array([3, 0]), chunk_size=chunk_size)
        np.testing.assert_array_equal(all_cells(matrix), expected)
        assert next(iter(matrix)).dtype == np.float32
    adata.write_h5ad(tmp_path / "a.h5ad")
    on_disk = Matrix(ad.read_h5ad(tmp_path / "a.h5ad", backed="r"), genes=np.array([3, 0]), chunk_size=7)
    np.testing.assert_array_equal(all_cells(on_disk), expected)


@pytest.mark.parametrize("n_cells", [0, 1])
def test_few_cells(cells, n_cells, x):
    matrix = Matrix(cells[:n_cells], genes=np.array([3, 1]))
    assert matrix.sample().shape == (n_cells, x.shape[1])
    (chunk,) = matrix
    np.testing.assert_array_equal(dense(chunk), x[:n_cells, [3, 1]])


def test_layers_and_never_raw(x):
    adata = ad.AnnData(x)
    adata.raw = adata
    adata.layers["half"] = sparse.csc_matrix(x / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy and AnnData advise against it.
        adata.layers["matrix"] = np.matrix(x / 4)
    adata.X = x * 2
    for layer, factor in ((None, 2), ("half", 1 / 2), ("matrix", 1 / 4)):
        chunk = all_cells(Matrix(adata, layer=layer))
        assert type(chunk) is np.ndarray
        np.testing.assert_array_equal(chunk, x * factor)
    adata.X = None
    with pytest.raises(dice.DiceError, match=r"adata.X is empty: name the layer to use with layer="):
        Matrix(adata)
    with pytest.raises(dice.DiceError, match=r"no layer 'none' in adata.layers; available: \['half', 'matrix'\]"):
        Matrix(adata, layer="none")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_values_that_are_not_finite_are_named_by_cell(convert, value):
    values = np.eye(20, 6)
    values[[2, 17], 1] = value
    adata = ad.AnnData(convert(values))
    with pytest.raises(dice.DiceError, match=r"1 cells hold NaN or infinite values, for example \['2'\]") as caught:
        list(Matrix(adata, chunk_size=10))
    assert "\n" not in str(caught.value)
    # Genes that are not asked for may hold anything.
    assert np.isfinite(all_cells(Matrix(adata, genes=np.array([0, 2])))).all()


def test_lazy_blocks_are_computed_once_in_a_pass(x):
    computed = []

    def note(block, block_info=None):
        if block_info:
            computed.append(block_info[0]["chunk-location"][0])
        return block

    for rows, chunk_size in ((40, 15), (40, 1000), (7, 30), (150, 20)):
        adata = ad.AnnData(da.from_array(x, chunks=(rows, -1)).map_blocks(note, dtype=x.dtype, meta=np.empty((0, 0))))
        computed.clear()
        np.testing.assert_array_equal(all_cells(Matrix(adata, chunk_size=chunk_size)), x)
        assert sorted(computed) == list(range(-(-len(x) // rows)))


N_MANY, D_MANY = 20_000, 2_000


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Folder with a sparse matrix that would be 160 MB if dense, in four files."""
    folder = tmp_path_factory.mktemp("many")
    matrix = sparse.random(N_MANY, D_MANY, 0.02, format="csr", dtype=np.float32, random_state=np.random.default_rng(0))
    for name, convert in (("csr", sparse.csr_matrix), ("csc", sparse.csc_matrix)):
        adata = ad.AnnData(convert(matrix))
        adata.write_h5ad(folder / f"{name}.h5ad")
        adata.write_zarr(folder / f"{name}.zarr")
    return folder


def lazy_zarr(path):
    return ad.AnnData(read_elem_lazy(zarr.open_group(path, mode="r")["X"]))


@pytest.mark.parametrize(
    ("open_", "limit"),
    [
        (lambda f: ad.read_h5ad(f / "csr.h5ad"), 10),
        (lambda f: ad.read_h5ad(f / "csc.h5ad"), 25),  # One copy as CSR.
        (lambda f: ad.read_h5ad(f / "csr.h5ad", backed="r"), 10),
        (lambda f: ad.read_h5ad(f / "csc.h5ad", backed="r"), 25),
        (lambda f: lazy_zarr(f / "csr.zarr"), 10),
        (lambda f: lazy_zarr(f / "csc.zarr"), 25),
        (lambda f: ad.AnnData(da.from_array(ad.read_h5ad(f / "csr.h5ad").X, chunks=(3000, -1))), 10),
    ],
    ids=["csr", "csc", "backed csr", "backed csc", "lazy csr", "lazy csc", "dask"],
)
def test_the_whole_matrix_is_never_dense(many, open_, limit):
    adata = open_(many)
    genes = np.random.default_rng(0).permutation(D_MANY)
    total = 0.0
    tracemalloc.start()
    try:
        matrix = Matrix(adata, genes=genes, chunk_size=2000)
        matrix.sample()
        for chunk in matrix:
            assert sparse.issparse(chunk)
            total += float(chunk.sum(dtype=np.float64))
        peak = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert total == pytest.approx(0.5 * 0.02 * N_MANY * D_MANY, rel=0.01)
    assert peak < limit, f"{peak:.0f} MB"


def test_a_dense_file_is_never_read_at_once(tmp_path):
    values = np.random.default_rng(0).random((5000, 1000), dtype=np.float32)
    ad.AnnData(values).write_h5ad(tmp_path / "dense.h5ad")
    adata = ad.read_h5ad(tmp_path / "dense.h5ad", backed="r")
    tracemalloc.start()
    try:
        sums = [chunk.sum() for chunk in Matrix(adata, chunk_size=250)]
        peak = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert sum(sums) == pytest.approx(values.sum(), rel=1e-4)
    assert peak < 6, f"{peak:.0f} MB of {values.nbytes / 1e6:.0f}"


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_permuting_genes_or_cells_permutes_the_result(data, prior, x):
    cells = np.array(data.draw(st.permutations(range(20))))
    genes = np.array(data.draw(st.permutations(range(x.shape[1]))))
    chunk_size = data.draw(st.integers(1, 25))
    convert = data.draw(st.sampled_from([np.asarray, sparse.csr_matrix, sparse.csc_array]))
    shuffled = ad.AnnData(convert(x[:20][np.ix_(cells, genes)]))
    matrix = Matrix(shuffled, genes=np.argsort(genes), chunk_size=chunk_size)
    np.testing.assert_array_equal(all_cells(matrix), x[cells])
    latents = np.concatenate([prior.projection.project(chunk) for chunk in matrix])
    np.testing.assert_allclose(latents, prior.projection.project(x[:20])[cells], atol=1e-5)
