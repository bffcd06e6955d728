"""The kinds of matrices that AnnData can hold, and a small prior."""

from __future__ import annotations

import anndata as ad
import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from anndata.experimental import read_elem_lazy
from scipy import sparse

import dice

N_CELLS, N_GENES = 150, 60


def expression(n=N_CELLS, d=N_GENES, seed=0):
    """Log-normalised expression of two cell types, dense float32, about half of it zero."""
    rng = np.random.default_rng(seed)
    rates = np.exp(np.random.default_rng(99).normal(-0.5, 1, size=(2, d)))[rng.permutation(n) % 2]
    counts = rng.poisson(rates)
    counts[:, 0] += 1  # No empty cell.
    return np.log1p(counts / counts.sum(1, keepdims=True) * 1e4).astype(np.float32)


def annotated(matrix, **kwargs):
    obs = pd.DataFrame(index=[f"cell_{i}" for i in range(matrix.shape[0])])
    var = pd.DataFrame(index=[f"gene_{i}" for i in range(matrix.shape[1])])
    return ad.AnnData(matrix, obs=obs, var=var, **kwargs)


def backed(convert):
    def make(x, folder):
        annotated(convert(x)).write_h5ad(folder / "cells.h5ad")
        return ad.read_h5ad(folder / "cells.h5ad", backed="r")

    return make


def lazy_zarr(convert, chunks=None):
    def make(x, folder):
        annotated(convert(x)).write_zarr(folder / "cells.zarr")
        group = zarr.open_group(folder / "cells.zarr", mode="r")
        return annotated(read_elem_lazy(group["X"], chunks=chunks))

    return make


def lazy_h5ad(x, folder):
    annotated(sparse.csr_matrix(x)).write_h5ad(folder / "lazy.h5ad")
    with h5py.File(folder / "lazy.h5ad") as file:
        return annotated(read_elem_lazy(file["X"], chunks=(40, -1)))


def lazy(convert, chunks):
    """A dask array whose blocks are converted."""
    return lambda x, folder: annotated(da.from_array(x, chunks=chunks).map_blocks(convert))


KINDS = {
    "dense": lambda x, folder: annotated(x.copy()),
    "fortran": lambda x, folder: annotated(np.asfortranarray(x)),
    "float64": lambda x, folder: annotated(x.astype(np.float64)),
    "csr_matrix": lambda x, folder: annotated(sparse.csr_matrix(x)),
    "csr_array": lambda x, folder: annotated(sparse.csr_array(x.astype(np.float64))),
    "csc_matrix": lambda x, folder: annotated(sparse.csc_matrix(x.astype(np.float64))),
    "csc_array": lambda x, folder: annotated(sparse.csc_array(x)),
    "view": lambda x, folder: annotated(np.repeat(x, 2, axis=0)[:, ::-1])[::2, ::-1],
    "backed dense": backed(np.asarray),
    "backed csr": backed(sparse.csr_matrix),
    "backed csc": backed(sparse.csc_matrix),
    "dask dense": lazy(np.asarray, (40, -1)),
    "dask tiles": lazy(np.asarray, (40, 25)),
    "dask genes": lazy(np.asarray, (-1, 25)),
    "dask csr": lazy(sparse.csr_matrix, (40, -1)),
    "dask csc": lazy(sparse.csc_matrix, (-1, 25)),
    "lazy zarr": lazy_zarr(np.asarray),
    "lazy zarr csr": lazy_zarr(sparse.csr_matrix, (40, -1)),
    "lazy zarr csc": lazy_zarr(sparse.csc_matrix, (-1, 25)),
    "lazy h5ad": lazy_h5ad,
}


@pytest.fixture(params=KINDS)
def cells(request, x, tmp_path):
    """AnnData object that holds `x` in one of all ways."""
    return KINDS[request.param](x, tmp_path)


@pytest.fixture(scope="session")
def prior():
    """A prior of 60 genes and four latents."""
    reference = annotated(sparse.csr_matrix(expression(300, seed=1)))
    dice.tl.train_prior(reference, n_latent=4, preset="gmm")
    return dice.Prior.from_anndata(reference)


@pytest.fixture(scope="session")
def x():
    """Expression of 150 cells and the prior's genes, dense float32."""
    values = expression()
    values.flags.writeable = False
    return values
