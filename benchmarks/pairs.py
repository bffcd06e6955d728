"""Reference and query pairs that label transfer is measured on."""

from __future__ import annotations

from collections.abc import Callable

import anndata as ad
import numpy as np
from data import hold_out, load, variable_genes

#: Genes of every pair: highly variable ones of the reference, among those that both measure.
N_GENES = 2000


def _by(name: str, key: str, reference: tuple[str, ...], query: tuple[str, ...]) -> tuple[ad.AnnData, ad.AnnData]:
    adata = load(name)
    return adata[adata.obs[key].isin(reference)].copy(), adata[adata.obs[key].isin(query)].copy()


def _bmmc(seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    return _by("bmmc_neurips_cite", "site", ("site1", "site2", "site3"), ("site4",))


def _suspension(reference: str, query: str) -> Callable[[int], tuple[ad.AnnData, ad.AnnData]]:
    return lambda seed: _by("pancreas_cellhint_atlas", "suspension_type", (reference,), (query,))


def _liu(seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    return _by("pbmc_liu_covid_citeseq", "batch", ("B1",), ("B3",))


def _nuclei_to_baron(seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    return _by("pancreas_cellhint_atlas", "suspension_type", ("nucleus",), ())[0], load("pancreas_baron_h1")


#: Name: labels, and how to load reference and query for a seed.
PAIRS: dict[str, tuple[str, Callable[[int], tuple[ad.AnnData, ad.AnnData]]]] = {
    "bmmc sites": ("cell_type", _bmmc),
    "bmmc sites, fine": ("cell_type_l2", _bmmc),
    "atlas -> Baron": ("cell_type", lambda seed: (load("pancreas_cellhint_atlas"), load("pancreas_baron_h1"))),
    "Baron -> atlas": ("cell_type", lambda seed: (load("pancreas_baron_h1"), load("pancreas_cellhint_atlas"))),
    "nuclei -> Baron": ("cell_type", _nuclei_to_baron),
    "cells -> nuclei": ("cell_type", _suspension("cell", "nucleus")),
    "Liu 1 -> 3": ("cell_type", _liu),
    "TEA-seq": ("cell_type", lambda seed: hold_out(load("pbmc_teaseq"), 1262, seed)),
}


def load_pair(name: str, seed: int, n_genes: int = N_GENES) -> tuple[ad.AnnData, ad.AnnData, str]:
    """Reference and query with the reference's variable genes, and the name of their labels.

    The seed leaves a tenth of the cells out on both sides, so that repetitions differ in their data as well. Query
    cells of a type that the reference lacks, and types of a single reference cell, are left out: nobody could get
    them right.
    """
    key, read = PAIRS[name]
    reference, query = read(seed)
    rng = np.random.default_rng(seed)
    counts = reference.obs[key].value_counts()
    reference = reference[reference.obs[key].isin(counts.index[counts >= 2])]
    reference = reference[rng.random(reference.n_obs) >= 0.1]
    query = query[query.obs[key].isin(reference.obs[key].unique())]
    query = query[rng.random(query.n_obs) >= 0.1]
    shared = reference.var_names.intersection(query.var_names, sort=False)
    reference = variable_genes(reference[:, shared].copy(), n_genes)
    for adata in (reference, query):
        adata.obs[key] = adata.obs[key].astype(str).astype("category")
    return reference, query[:, reference.var_names].copy(), key
