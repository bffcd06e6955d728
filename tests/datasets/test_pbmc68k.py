from __future__ import annotations

import doctest

import numpy as np
from scipy import sparse

from dice import datasets
from dice.datasets import _real


def test_pbmc68k_is_fit_for_use() -> None:
    cells = datasets.pbmc68k()
    assert cells.shape == (700, 765)
    assert sparse.issparse(cells.X)
    assert cells.X.format == "csr"
    assert cells.X.dtype == np.float32
    assert cells.X.data.min() > 0
    assert cells.raw is None
    assert not any(map(len, (cells.uns, cells.obsm, cells.obsp, cells.varm, cells.layers)))
    assert cells.obs_names.is_unique
    assert cells.var_names.is_unique
    assert cells.obs["cell_type"].dtype == "category"
    assert cells.obs["cell_type"].value_counts().min() == 8


def test_pbmc68k_is_log_normalised_counts() -> None:
    cells = datasets.pbmc68k()
    # Undoing the logarithm, each cell's values are whole multiples of what one count was worth.
    for row in range(0, 700, 50):
        worth = np.expm1(cells.X[row].data)
        counts = worth / worth.min()
        small = counts[counts < 6]
        assert np.abs(small - np.round(small)).max() < 0.02
    assert cells.X.data.max() < np.log1p(1e4)


def test_pbmc68k_is_fresh_every_time(tmp_path) -> None:
    first = datasets.pbmc68k()
    first.X.data[:] = 0
    second = datasets.pbmc68k()
    assert second.X.data.min() > 0
    second.write_h5ad(tmp_path / "cells.h5ad")


def test_example_runs() -> None:
    assert doctest.testmod(_real).failed == 0
