"""Pairs of a reference and a query from another technology, site or study."""

from __future__ import annotations

from collections.abc import Callable

import anndata as ad
import numpy as np
from data import hold_out, load, variable_genes, without_single_cells

Cells = tuple[str, Callable[[ad.AnnData], np.ndarray] | None]


def _where(column: str, *values: str) -> Callable[[ad.AnnData], np.ndarray]:
    return lambda adata: adata.obs[column].astype(str).isin(values).to_numpy()


_ATLAS: Cells = ("pancreas_cellhint_atlas", None)
_CELLS: Cells = ("pancreas_cellhint_atlas", _where("suspension_type", "cell"))
_NUCLEI: Cells = ("pancreas_cellhint_atlas", _where("suspension_type", "nucleus"))
_BARON: Cells = ("pancreas_baron_h1", None)


def _chemistry(tech: str) -> Cells:
    return ("pbmc_symphony_3chem", _where("batch", tech))


def _liu(batch: str) -> Cells:
    return ("pbmc_liu_covid_citeseq", _where("batch", batch))


CHEMISTRIES = ("3pv1", "3pv2", "5p")
PAIRS: dict[str, tuple[Cells, Cells]] = {
    "cells -> nuclei": (_CELLS, _NUCLEI),
    "nuclei -> cells": (_NUCLEI, _CELLS),
    "nuclei -> Baron": (_NUCLEI, _BARON),
    "Baron -> atlas": (_BARON, _ATLAS),
    "atlas -> Baron": (_ATLAS, _BARON),
    **{f"{a} -> {b}": (_chemistry(a), _chemistry(b)) for a in CHEMISTRIES for b in CHEMISTRIES if a != b},
    "Liu 1 -> 2": (_liu("B1"), _liu("B2")),
    "Liu 1 -> 3": (_liu("B1"), _liu("B3")),
    "bmmc 1-3 -> 4": (
        ("bmmc_neurips_cite", _where("site", "site1", "site2", "site3")),
        ("bmmc_neurips_cite", _where("site", "site4")),
    ),
}
#: Larger data sets are sampled.
MAX_CELLS = 4000
#: What label transfer is measured on: the pair, None for a random fifth of TEA-seq, and the labels.
TRANSFER: dict[str, tuple[str | None, str]] = {
    "bmmc sites": ("bmmc 1-3 -> 4", "cell_type"),
    "bmmc sites, fine": ("bmmc 1-3 -> 4", "cell_type_l2"),
    **{name: (name, "cell_type") for name in list(PAIRS)[:5] if name != "nuclei -> cells"},
    "Liu 1 -> 3": ("Liu 1 -> 3", "cell_type"),
    "TEA-seq": (None, "cell_type"),
}


def pair_of(name: str, seed: int, *, n_top_genes: int = 3000) -> tuple[ad.AnnData, ad.AnnData]:
    """Reference and query of a pair in the reference's variable genes, with the types that both have.

    Types of a single reference cell are left out: it could be learned from or checked by, not both.
    """
    (source, of_reference), (target, of_query) = PAIRS[name]
    reference, query = _take(source, of_reference, seed), _take(target, of_query, seed + 1000)
    reference = reference[:, reference.var_names.isin(query.var_names)].copy()
    shared = set(without_single_cells(reference, "cell_type").obs["cell_type"]) & set(query.obs["cell_type"])
    reference, query = (a[a.obs["cell_type"].isin(shared)].copy() for a in (reference, query))
    reference = variable_genes(reference, n_top_genes)
    return reference, query[:, reference.var_names].copy()


def third_of_types(query: ad.AnnData, seed: int) -> ad.AnnData:
    """The cells of a random third of the query's types (at least two): the same shift, another composition."""
    types = np.unique(query.obs["cell_type"].astype(str))
    kept = np.random.default_rng(seed).choice(types, max(2, round(len(types) / 3)), replace=False)
    return query[query.obs["cell_type"].isin(kept)].copy()


def transfer(name: str, seed: int, *, n_top_genes: int = 2000) -> tuple[ad.AnnData, ad.AnnData, str]:
    """Reference and query of a pair of `TRANSFER` in the reference's variable genes, and the name of their labels.

    The seed leaves a tenth of the cells out on both sides, so that repetitions differ in their data as well. Query
    cells of a type that the reference lacks, and types of a single reference cell, are left out: nobody could get
    them right.
    """
    pair, key = TRANSFER[name]
    if pair is None:
        adata = load("pbmc_teaseq")
        reference, query = hold_out(adata, adata.n_obs // 5, seed)
    else:
        reference, query = (_all(*cells) for cells in PAIRS[pair])
    rng = np.random.default_rng(seed)
    reference = without_single_cells(reference, key)
    reference = without_single_cells(reference[rng.random(reference.n_obs) >= 0.1], key)
    query = query[query.obs[key].isin(reference.obs[key].unique())]
    query = query[rng.random(query.n_obs) >= 0.1]
    shared = reference.var_names.intersection(query.var_names, sort=False)
    reference = variable_genes(reference[:, shared].copy(), n_top_genes)
    for adata in (reference, query):
        adata.obs[key] = adata.obs[key].astype(str).astype("category")
    return reference, query[:, reference.var_names].copy(), key


def _all(name: str, which: Callable[[ad.AnnData], np.ndarray] | None) -> ad.AnnData:
    adata = load(name)
    return adata if which is None else adata[which(adata)].copy()


def _take(name: str, which: Callable[[ad.AnnData], np.ndarray] | None, seed: int) -> ad.AnnData:
    adata = _all(name, which)
    if adata.n_obs <= MAX_CELLS:
        return adata
    return adata[np.sort(np.random.default_rng(seed).choice(adata.n_obs, MAX_CELLS, replace=False))].copy()
