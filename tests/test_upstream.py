"""Both sides of changes in anndata and scanpy: what the installed versions do not do yet is simulated.

The same tests run on the versions that do it (docs/support.md).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
import zarr

import dice
from dice._arguments import seed
from dice._data import graph
from dice._data.checks import check_counts
from dice._data.features import find_table
from dice._data.files import write_file
from dice._data.matrix import Matrix
from dice._data.read import names
from dice._data.recipe import variable_genes
from dice._data.write import stand_in

SOURCE = Path(__file__).parents[1] / "src"
VALUES = np.random.default_rng(0).gamma(1.0, size=(12, 5)).astype(np.float32)


class UnnamedLayer(ad.AnnData):
    """anndata 0.13: X is among the layers, under None."""

    @property
    def layers(self):
        return {None: self.X, **super().layers}


@pytest.fixture
def cells():
    found = ad.AnnData(VALUES, layers={"counts": np.round(VALUES)})
    found.__class__ = UnnamedLayer
    assert list(found.layers) == [None, "counts"]
    return found


def test_x_is_no_layer_that_a_user_could_name(cells):
    assert names(cells, "layers") == ["counts"]
    with pytest.raises(dice.DiceError, match=r"pass a `layer` that holds them, one of \['counts'\]"):
        check_counts(cells, None)
    with pytest.raises(dice.DiceError, match=r"'layer:NAME' \['counts'\]"):
        find_table(cells, cells, "protein")
    with pytest.raises(dice.DiceError, match=r"available: \['counts'\]\.$"):
        Matrix(cells, layer="None")


def test_x_is_taken_along_once(cells, tmp_path):
    stage = stand_in(cells)
    assert names(stage, "layers") == ["counts"]
    np.testing.assert_array_equal(stage.X, VALUES)
    write_file(stage, tmp_path / "cells.zarr")
    assert set(zarr.open_group(tmp_path / "cells.zarr", mode="r")["layers"]) == {"counts"}
    np.testing.assert_array_equal(ad.read_zarr(tmp_path / "cells.zarr").X, VALUES)


@pytest.fixture
def preset(monkeypatch):
    """scanpy 1.13: a user's preset decides what is not said. UMAP itself takes long to compile, and is left out."""
    variable = sc.pp.highly_variable_genes
    given = []

    def other_umap(adata, *, random_state, init_pos, key_added="umap"):
        given.append(random_state)
        adata.obsm[key_added] = np.random.default_rng(random_state).normal(size=(adata.n_obs, 2))

    def other_genes(adata, *, flavor="seurat_v3_paper", **options):
        return variable(adata, flavor=flavor, **options)

    monkeypatch.setattr(sc.tl, "umap", other_umap)
    monkeypatch.setattr(graph, "_exact", lambda values, n_neighbors: ad.AnnData(values))
    monkeypatch.setattr(sc.pp, "highly_variable_genes", other_genes)
    return given


def test_a_preset_of_scanpy_changes_nothing(preset, monkeypatch):
    cells = ad.AnnData(np.log1p(np.random.default_rng(1).gamma(0.5, size=(60, 30))).astype(np.float32))
    assert graph.umap_layout(cells.X, 4, 0).shape == graph.Map(cells.X).coordinates.shape
    found = variable_genes(cells, 10, "adata")
    monkeypatch.undo()
    np.testing.assert_array_equal(found, variable_genes(cells, 10, "adata"))


def test_scanpy_is_given_numbers_where_a_user_gives_a_generator(preset):
    """Up to 1.12 it takes no Generator; ours does on every version, and decides alone."""
    one, same, other = (graph.umap_layout(VALUES, 4, seed(np.random.default_rng(number))) for number in (3, 3, 4))
    assert [type(state) for state in preset] == [int, int, int]
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_the_code_asks_for_features_and_not_for_versions():
    """A version is stored, shown and printed, never compared."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"\bpackaging\b|version_info|Version\(", text), path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare):
                assert "__version__" not in ast.unparse(node), path
                assert not re.search(r"\bversion\(", ast.unparse(node)), path
