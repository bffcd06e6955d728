"""Pairs of a reference and a query from another technology, site or study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anndata as ad
import numpy as np
from data import hold_out, load, variable_genes, without_single_cells

Choice = Callable[[ad.AnnData], np.ndarray]


@dataclass(frozen=True)
class Cells:
    """Some cells of a data set: its file, the cells (by default all), and a column of ``var`` with other gene names."""

    file: str
    which: Choice | None = None
    gene_key: str | None = None

    def load(self) -> ad.AnnData:
        adata = load(self.file)
        if self.which is not None:
            adata = adata[self.which(adata)].copy()
        if self.gene_key is not None:
            adata = adata[:, ~adata.var[self.gene_key].duplicated().to_numpy()].copy()
            adata.var_names = adata.var[self.gene_key].astype(str).to_numpy()
        return adata


def _where(column: str, *values: str) -> Choice:
    return lambda adata: adata.obs[column].astype(str).isin(values).to_numpy()


def _of_batch_1(condition: str) -> Cells:
    """Liu's cells of one condition within one batch."""
    return Cells(
        "pbmc_liu_covid_citeseq",
        lambda adata: _where("batch", "B1")(adata) & _where("cond_group", condition)(adata),
    )


_ATLAS = Cells("pancreas_cellhint_atlas")
_CELLS = Cells("pancreas_cellhint_atlas", _where("suspension_type", "cell"))
_NUCLEI = Cells("pancreas_cellhint_atlas", _where("suspension_type", "nucleus"))
_BARON = Cells("pancreas_baron_h1")
_HUMAN = Cells("pancreas_human_baron_came")
_MOUSE = Cells("pancreas_mouse_baron", gene_key="human_symbol")


def _chemistry(tech: str) -> Cells:
    return Cells("pbmc_symphony_3chem", _where("batch", tech))


def _liu(batch: str) -> Cells:
    return Cells("pbmc_liu_covid_citeseq", _where("batch", batch))


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
        Cells("bmmc_neurips_cite", _where("site", "site1", "site2", "site3")),
        Cells("bmmc_neurips_cite", _where("site", "site4")),
    ),
}
#: Donors, libraries, conditions and species, for label transfer alone.
_MOP_FIRST = [f"lib{i}" for i in range(1, 9)]
MORE_PAIRS: dict[str, tuple[Cells, Cells]] = {
    "human -> mouse": (_HUMAN, _MOUSE),
    "mouse -> human": (_MOUSE, _HUMAN),
    "human donors": (
        Cells(_HUMAN.file, _where("donor", "human1", "human2", "human4")),
        Cells(_HUMAN.file, _where("donor", "human3")),
    ),
    "mouse donors": (Cells(_MOUSE.file, _where("donor", "mouse1")), Cells(_MOUSE.file, _where("donor", "mouse2"))),
    "Liu healthy -> severe": (_of_batch_1("HC"), _of_batch_1("Severe")),
    "MOp libraries": (
        Cells("mop_mouse_10x_500genes", _where("batch", *_MOP_FIRST)),
        Cells("mop_mouse_10x_500genes", lambda adata: ~_where("batch", *_MOP_FIRST)(adata)),
    ),
}
#: Larger data sets are sampled.
MAX_CELLS = 4000
#: What label transfer is measured on: the pair, None for a random fifth of TEA-seq, and the labels.
TRANSFER: dict[str, tuple[str | None, str]] = {
    "bmmc sites": ("bmmc 1-3 -> 4", "cell_type"),
    "bmmc sites, fine": ("bmmc 1-3 -> 4", "cell_type_l2"),
    **{name: (name, "cell_type") for name in (*PAIRS, *MORE_PAIRS) if not name.startswith("bmmc")},
    "TEA-seq": (None, "cell_type"),
}


def pair_of(name: str, seed: int, *, n_top_genes: int = 3000) -> tuple[ad.AnnData, ad.AnnData]:
    """Reference and query of a pair in the reference's variable genes, with the types that both have.

    Types of a single reference cell are left out: it could be learned from or checked by, not both.
    """
    reference, query = (_some(cells.load(), seed + i) for i, cells in zip((0, 1000), PAIRS[name], strict=True))
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
        reference, query = (cells.load() for cells in (PAIRS | MORE_PAIRS)[pair])
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


def _some(adata: ad.AnnData, seed: int) -> ad.AnnData:
    """At most `MAX_CELLS` random cells."""
    if adata.n_obs <= MAX_CELLS:
        return adata
    return adata[np.sort(np.random.default_rng(seed).choice(adata.n_obs, MAX_CELLS, replace=False))].copy()
