"""Genes that vary in several data sets."""

from functools import reduce

import pandas as pd
from anndata import AnnData

from dice import _log
from dice._arguments import whole_number
from dice._data.genes import check_unique
from dice._data.recipe import variable_genes
from dice._errors import InputError


def shared_genes(*adatas: AnnData, n_top_genes: int = 5000) -> pd.Index:
    """Return the genes that are highly variable in all of several data sets. Nothing is written.

    This is the paper's protocol for the neocortex data: take the genes that all data sets have,
    choose the most variable ones in each data set, and return their intersection. scanpy ranks the
    genes of a data set with flavor ``"seurat_v3"`` if it holds raw counts (in ``layers["counts"]``,
    where :func:`prepare` leaves them, or in ``X``), and otherwise with flavor ``"seurat"``, which
    expects ``X`` to be log-normalised.

    Parameters
    ----------
    *adatas
        Two or more data sets of cells x genes, with names of the same kind in ``var_names``.
    n_top_genes
        Number of highly variable genes per data set. If no more genes are shared, all shared genes are taken.

    Returns
    -------
    The names, in the order of the first data set.

    Examples
    --------
    >>> import dice
    >>> cells = dice.datasets.pbmc68k()
    >>> genes = dice.pp.shared_genes(cells[:350], cells[350:], n_top_genes=200)
    >>> 100 < len(genes) < 200
    True
    """
    if len(adatas) < 2:
        raise InputError(f"{len(adatas)} data set(s) given: pass two or more to compare their genes.")
    n_top_genes = whole_number("n_top_genes", n_top_genes)
    names = [pd.Index(adata.var_names.astype(str)) for adata in adatas]
    for number, index in enumerate(names, 1):
        check_unique(index, f"var_names of data set {number}")
    common = reduce(lambda shared, index: shared[shared.isin(index)], names)
    if common.empty:
        examples = " and ".join(str(list(index[:3])) for index in names)
        raise InputError(f"The data sets share no gene: set var_names to names of one kind, got {examples}.")
    chosen = common
    for number, (adata, index) in enumerate(zip(adatas, names, strict=True), 1):
        variable = variable_genes(adata[:, index.get_indexer(common)], n_top_genes, f"Data set {number}")
        chosen = chosen[variable[common.get_indexer(chosen)]]
    if chosen.empty:
        raise InputError(f"No shared gene is among the top {n_top_genes} genes of all data sets: raise n_top_genes.")
    _log.info(f"{len(chosen)} of {len(common)} shared genes are highly variable in all data sets.")
    return chosen
