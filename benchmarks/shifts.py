"""Pairs of a reference and a query from another technology, site or study."""

from __future__ import annotations

from collections.abc import Callable

import anndata as ad
import numpy as np
from data import load, variable_genes

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


def shift(name: str, seed: int, *, n_top_genes: int = 3000) -> tuple[ad.AnnData, ad.AnnData]:
    """Reference and query of a pair, with the cell types that both have, in the reference's variable genes."""
    (source, of_reference), (target, of_query) = PAIRS[name]
    reference, query = _take(source, of_reference, seed), _take(target, of_query, seed + 1000)
    reference = reference[:, reference.var_names.isin(query.var_names)].copy()
    shared = set(reference.obs["cell_type"]) & set(query.obs["cell_type"])
    reference, query = (a[a.obs["cell_type"].isin(shared)].copy() for a in (reference, query))
    reference = variable_genes(reference, n_top_genes)
    return reference, query[:, reference.var_names].copy()


def third_of_types(query: ad.AnnData, seed: int) -> ad.AnnData:
    """The cells of a random third of the query's types (at least two): the same shift, another composition."""
    types = np.unique(query.obs["cell_type"].astype(str))
    kept = np.random.default_rng(seed).choice(types, max(2, round(len(types) / 3)), replace=False)
    return query[query.obs["cell_type"].isin(kept)].copy()


def _take(name: str, which: Callable[[ad.AnnData], np.ndarray] | None, seed: int) -> ad.AnnData:
    adata = load(name)
    cells = np.arange(adata.n_obs) if which is None else np.flatnonzero(which(adata))
    if len(cells) > MAX_CELLS:
        cells = np.sort(np.random.default_rng(seed).choice(cells, MAX_CELLS, replace=False))
    return adata[cells].copy()
