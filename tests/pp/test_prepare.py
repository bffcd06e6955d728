from __future__ import annotations

import doctest
import logging

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

import dice
from dice._errors import InputError, SlotError
from dice.pp import _prepare, prepare


def snapshot(adata: ad.AnnData) -> dict[str, object]:
    """Everything a call could change, as bytes and text."""

    def raw(x: object) -> object:
        if sparse.issparse(x):
            return x.data.tobytes(), x.indices.tobytes(), x.indptr.tobytes(), x.shape
        return np.asarray(x).tobytes()

    return {
        "X": raw(adata.X),
        "layers": {key: raw(value) for key, value in adata.layers.items()},
        "obsm": {key: raw(value) for key, value in adata.obsm.items()},
        "obs": adata.obs.to_csv(),
        "var": adata.var.to_csv(),
        "uns": repr(dict(adata.uns)),
    }


@pytest.fixture
def cells() -> ad.AnnData:
    """Counts in which every filter has something to remove."""
    rng = np.random.default_rng(0)
    level = rng.gamma(0.5, 2.0, size=400)
    counts = rng.poisson(level * rng.gamma(4, 0.25, size=(150, 1)) * rng.gamma(2, 0.5, (150, 400)))
    names = [f"gene{i}" for i in range(400)]
    names[:3] = ["MT-CO1", "MT-ND1", "mt-Cyb"]
    counts[:, 3:8] = 0
    counts[:2, 3] = 1  # a gene of two cells
    counts[:10, 50:] = 0  # cells of few genes
    counts[10:20, 0] += 500  # dying cells
    return ad.AnnData(
        sparse.csr_matrix(counts.astype(np.float32)),
        obs=pd.DataFrame({"batch": ["a", "b"] * 75}, index=[f"cell{i}" for i in range(150)]),
        var=pd.DataFrame(index=names),
        obsm={"other": rng.normal(size=(150, 2))},
        uns={"note": "kept"},
    )


def by_hand(adata: ad.AnnData, *, batch_key: str | None, n_top_genes: int) -> ad.AnnData:
    adata = adata.copy()
    sc.pp.filter_cells(adata, min_genes=60)
    sc.pp.filter_genes(adata, min_cells=3)
    adata.var["mt"] = adata.var_names.str.startswith(("MT-", "mt-"))
    sc.pp.calculate_qc_metrics(adata, qc_vars=["mt"], percent_top=None, log1p=False, inplace=True)
    adata = adata[adata.obs["pct_counts_mt"] <= 15].copy()
    adata.layers["counts"] = adata.X.copy()
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, n_top_genes=n_top_genes, flavor="seurat_v3", layer="counts", batch_key=batch_key)
    return adata


def assert_same(left: ad.AnnData, right: ad.AnnData) -> None:
    pd.testing.assert_frame_equal(left.obs, right.obs)
    pd.testing.assert_frame_equal(left.var, right.var)
    for one, two in ((left.X, right.X), (left.layers["counts"], right.layers["counts"])):
        assert type(one) is type(two)
        assert one.dtype == two.dtype
        assert sparse.csr_matrix(one != two).nnz == 0


@pytest.mark.parametrize("batch_key", [None, "batch"])
def test_equals_the_steps_typed_by_hand(cells, batch_key) -> None:
    expected = by_hand(cells, batch_key=batch_key, n_top_genes=100)
    assert prepare(cells, batch_key=batch_key, n_top_genes=100, min_genes=60) is None
    assert_same(cells, expected)
    report = cells.uns.pop("dice_prepare")
    assert cells.uns == expected.uns
    np.testing.assert_array_equal(cells.obsm["other"], expected.obsm["other"])
    assert report["n_cells"] == {"input": 150, "min_genes": 138, "max_pct_mt": 128}
    assert report["n_genes"] == {"input": 400, "min_cells": cells.n_vars, "highly_variable": 100}
    assert cells.n_vars <= 395
    assert report["params"]["max_pct_mt"] == 15
    assert report["params"].get("batch_key") == batch_key


@pytest.mark.parametrize("kind", ["dense", "csr", "csc", "csr_array", "int", "view", "float64"])
def test_every_kind_of_matrix_gives_the_same(cells, kind) -> None:
    expected = prepare(cells, n_top_genes=100, min_genes=60, copy=True)
    make = {
        "dense": lambda x: x.toarray(),
        "csr": sparse.csr_matrix,
        "csc": sparse.csc_matrix,
        "csr_array": sparse.csr_array,
        "int": lambda x: x.astype(np.int32),
        "view": sparse.csr_matrix,
        "float64": lambda x: x.astype(np.float64),
    }[kind]
    cells.X = make(cells.X)
    if kind == "view":
        cells = ad.concat([cells, cells[:5]], index_unique="-")[:150]
        cells.obs_names = cells.obs_names.str.removesuffix("-0")
    prepare(cells, n_top_genes=100, min_genes=60)
    assert not cells.is_view
    assert cells.obs_names.equals(expected.obs_names)
    assert cells.var["highly_variable"].equals(expected.var["highly_variable"])
    dense = cells.X if kind == "dense" else cells.X.toarray()
    np.testing.assert_allclose(dense, expected.X.toarray(), rtol=1e-6)


def test_copy_leaves_the_input_alone(cells) -> None:
    before = snapshot(cells)
    result = prepare(cells, n_top_genes=100, min_genes=60, copy=True)
    assert snapshot(cells) == before
    prepare(cells, n_top_genes=100, min_genes=60)
    assert_same(result, cells)


def test_counts_from_a_layer(cells) -> None:
    expected = prepare(cells, n_top_genes=100, min_genes=60, copy=True)
    cells.layers["raw"] = cells.X.copy()
    sc.pp.normalize_total(cells)
    sc.pp.log1p(cells)
    with pytest.raises(InputError, match=r"adata\.X does not hold raw counts.*`layer`.*\['raw'\]"):
        prepare(cells)
    prepare(cells, n_top_genes=100, min_genes=60, layer="raw")
    assert_same(cells, expected)


def test_survives_a_file(cells, tmp_path) -> None:
    prepare(cells, batch_key="batch", n_top_genes=100, min_genes=60)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    stored = ad.read_h5ad(tmp_path / "cells.h5ad").uns["dice_prepare"]
    assert stored["n_cells"]["max_pct_mt"] == 128
    assert stored["params"]["batch_key"] == "batch"


def test_few_genes_are_all_variable(cells, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="dice"):
        prepare(cells, n_top_genes=1000, min_genes=60)
    assert cells.var["highly_variable"].all()
    assert "genes are kept as highly variable (n_top_genes=1000)" in caplog.text


def test_no_mitochondrial_gene_is_said(cells, caplog, capsys) -> None:
    with caplog.at_level(logging.INFO, logger="dice"):
        prepare(cells[:, 8:].copy(), n_top_genes=100, min_genes=60)
    assert "No gene is named MT-*" in caplog.text
    assert "No gene is named MT-*" in capsys.readouterr().err  # Nobody has asked for a log.


def negative(cells: ad.AnnData) -> None:
    cells.X.data[0] = -1


def fraction(cells: ad.AnnData) -> None:
    cells.X.data[0] = 0.5


def missing(cells: ad.AnnData) -> None:
    cells.X.data[0] = np.nan


def duplicate(cells: ad.AnnData) -> None:
    cells.var_names = [*cells.var_names[:-1], "gene10"]


def no_batch(cells: ad.AnnData) -> None:
    cells.obs["batch"] = [None, *cells.obs["batch"][1:]]


def small_batch(cells: ad.AnnData) -> None:
    cells.obs["batch"] = np.where(np.isin(np.arange(150), [40, 41]), "pair", "all")


def tiny_batch(cells: ad.AnnData) -> None:
    cells.obs["batch"] = np.where(np.arange(150) == 40, "lonely", "all")


@pytest.mark.parametrize(
    ("spoil", "options", "error", "text"),
    [
        (negative, {}, InputError, "1 values in adata.X are not counts.* of gene 'mt-Cyb' in cell 'cell0'"),
        (fraction, {}, InputError, "1 values in adata.X are not counts.* of gene 'mt-Cyb' in cell 'cell0'"),
        (missing, {}, InputError, "NaN"),
        (duplicate, {}, InputError, "gene10.*var_names_make_unique"),
        (no_batch, {"batch_key": "batch"}, InputError, "1 cells have no value in .*notna"),
        (None, {"batch_key": "nope"}, SlotError, "no column 'nope'"),
        (None, {"layer": "nope"}, SlotError, "no layer 'nope'"),
        (None, {"min_genes": 5000}, InputError, "min_genes=5000 leaves 0 cells.*less strict"),
        (None, {"min_cells": 5000}, InputError, "min_cells=5000 leaves .* 0 genes.*less strict"),
        (None, {"max_pct_mt": -1.0}, InputError, "`max_pct_mt` must be a number of at least 0, got -1.0"),
        (None, {"n_top_genes": 0}, InputError, "`n_top_genes` must be .*got 0"),
        (small_batch, {"batch_key": "batch"}, InputError, "merge small batches, or pass batch_key=None"),
        (tiny_batch, {"batch_key": "batch"}, InputError, "merge small batches, or pass batch_key=None"),
    ],
)
def test_failure_names_the_fix_and_writes_nothing(cells, spoil, options, error, text) -> None:
    if spoil is not None:
        spoil(cells)
    before = snapshot(cells)
    with pytest.raises(error, match=text):
        prepare(cells, **({"min_genes": 60, "n_top_genes": 100} | options))
    assert snapshot(cells) == before


def test_backed_counts_are_refused(cells, tmp_path) -> None:
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(InputError, match="to_memory"):
        prepare(backed)
    backed.file.close()


@pytest.mark.data
def test_real_counts(shared_data) -> None:
    adata = ad.read_h5ad(shared_data("pancreas_baron_h1"))
    prepare(adata, batch_key="batch", n_top_genes=2000)
    report = adata.uns["dice_prepare"]
    assert report["n_cells"]["max_pct_mt"] == adata.n_obs > 1900
    assert report["n_genes"]["highly_variable"] == 2000
    np.testing.assert_allclose(np.expm1(adata.X).sum(1), 1e4, rtol=1e-4)


def test_example_runs() -> None:
    assert doctest.testmod(_prepare).failed == 0


def test_a_filter_that_removes_many_cells_says_so(cells) -> None:
    with pytest.warns(dice.DiceWarning, match=r"of 138 cells \(\d+%\) are removed.*larger max_pct_mt"):
        prepare(cells, n_top_genes=100, min_genes=60, max_pct_mt=2.0, copy=True)


def test_mixed_technologies_are_said(cells) -> None:
    rng = np.random.default_rng(0)
    factor = np.where(np.arange(150)[:, None] % 2, 20 * rng.gamma(0.2, size=400), 2.0)
    cells.X = sparse.csr_matrix(np.round(cells.X.toarray() * factor))
    with pytest.warns(dice.DiceWarning, match=r"obs\['batch'\] explains .* pass batch_key='batch'"):
        prepare(cells, n_top_genes=100, min_genes=0, max_pct_mt=100, copy=True)
    prepare(cells, n_top_genes=100, min_genes=0, max_pct_mt=100, batch_key="batch", copy=True)
