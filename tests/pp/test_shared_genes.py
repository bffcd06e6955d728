from __future__ import annotations

import doctest

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

from dice import datasets
from dice._errors import InputError
from dice.pp import _shared_genes, prepare, shared_genes


@pytest.fixture
def pair() -> tuple[ad.AnnData, ad.AnnData]:
    """Two halves of one data set, with genes in another order and some of their own."""
    cells = datasets.pbmc68k()
    return cells[::2, :600].copy(), cells[1::2, :99:-1].copy()


def by_hand(one: ad.AnnData, two: ad.AnnData, n: int, **options: object) -> list[str]:
    common = [name for name in one.var_names if name in set(two.var_names)]
    chosen = [
        set(common)
        & set(
            sc.pp.highly_variable_genes(
                ad.AnnData(part.X, var=pd.DataFrame(index=part.var_names)),
                n_top_genes=n,
                inplace=False,
                **options,
            )
            .query("highly_variable")
            .index
        )
        for part in (one[:, common].copy(), two[:, common].copy())
    ]
    return [name for name in common if name in chosen[0] & chosen[1]]


def test_logged_data_by_hand(pair) -> None:
    before = [part.X.data.tobytes() for part in pair]
    genes = shared_genes(*pair, n_top_genes=150)
    expected = by_hand(*pair, 150, flavor="seurat")
    assert list(genes) == expected
    assert 50 < len(expected) < 150
    assert [part.X.data.tobytes() for part in pair] == before
    assert all("highly_variable" not in part.var for part in pair)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.csc_matrix])
def test_the_kind_of_matrix_does_not_matter(pair, kind) -> None:
    expected = list(shared_genes(*pair, n_top_genes=150))
    for part in pair:
        part.X = kind(part.X)
    assert list(shared_genes(*pair, n_top_genes=150)) == expected


def test_counts_by_hand(pair) -> None:
    for part in pair:
        part.X = sparse.csr_matrix(np.round(np.expm1(part.X.toarray())))
    genes = shared_genes(*pair, n_top_genes=150)
    assert list(genes) == by_hand(*pair, 150, flavor="seurat_v3")


def test_prepared_data_are_ranked_by_their_counts(pair) -> None:
    for part in pair:
        part.X = sparse.csr_matrix(np.round(np.expm1(part.X.toarray())))
    expected = shared_genes(*pair, n_top_genes=150)
    prepared = [prepare(part, min_genes=0, min_cells=0, max_pct_mt=100, copy=True) for part in pair]
    assert list(shared_genes(*prepared, n_top_genes=150)) == list(expected)


def test_three_data_sets_and_all_genes(pair) -> None:
    genes = shared_genes(*pair, pair[0][:, 200:], n_top_genes=10_000)
    common = [g for g in pair[0].var_names[200:] if g in set(pair[1].var_names)]
    assert list(genes) == common


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a, b: (a,), "1 data set"),
        (lambda a, b: (a, b[:, :0]), "share no gene: set var_names to names of one kind"),
        (lambda a, b: (a, ad.AnnData(b.X.toarray() - 1, var=b.var)), "negative"),
        (lambda a, b: (a, ad.AnnData(b.X[:, [0, 0]], var=b.var.iloc[[0, 0]])), "make_unique"),
    ],
)
def test_errors_name_the_fix(pair, change, text) -> None:
    with pytest.warns() if "make_unique" in text else np.errstate():
        sets = change(*pair)
    with pytest.raises(InputError, match=text):
        shared_genes(*sets, n_top_genes=100)


def test_no_variable_gene_in_common() -> None:
    values = np.random.default_rng(0).gamma(1, size=(60, 30))
    one, two = (ad.AnnData(values[:, order]) for order in (np.arange(30), np.arange(30)[::-1]))
    with pytest.raises(InputError, match=r"No shared gene is among the .*: raise n_top_genes"):
        shared_genes(one, two, n_top_genes=1)
    with pytest.raises(InputError, match=r"`n_top_genes` must be .*got 0"):
        shared_genes(one, two, n_top_genes=0)


def test_one_cell_is_too_few() -> None:
    cells = ad.AnnData(np.arange(60.0).reshape(2, 30))
    with pytest.raises(InputError, match=r"Hardly any gene varies in the 1 cells.*use more cells"):
        shared_genes(cells[:1], cells, n_top_genes=3)


def test_example_runs() -> None:
    assert doctest.testmod(_shared_genes).failed == 0
