"""The paper's preprocessing of raw counts."""

from typing import Any

from anndata import AnnData

from dice._arguments import as_plain, number, whole_number
from dice._data.checks import check_counts, read_batches
from dice._data.genes import check_unique
from dice._data.recipe import prepared
from dice._data.write import Slots, replace, write
from dice._model.counts import TARGET_SUM


def prepare(
    adata: AnnData,
    *,
    batch_key: str | None = None,
    n_top_genes: int = 3000,
    min_genes: int = 200,
    min_cells: int = 3,
    max_pct_mt: float = 15.0,
    layer: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Filter, normalise and log raw counts and mark variable genes: the paper's recipe.

    These scanpy steps give the same result::

        sc.pp.filter_cells(adata, min_genes=200)
        sc.pp.filter_genes(adata, min_cells=3)
        adata.var["mt"] = adata.var_names.str.startswith(("MT-", "mt-"))
        sc.pp.calculate_qc_metrics(adata, qc_vars=["mt"], percent_top=None, log1p=False, inplace=True)
        adata = adata[adata.obs["pct_counts_mt"] <= 15].copy()
        adata.layers["counts"] = adata.X.copy()
        sc.pp.normalize_total(adata, target_sum=1e4)
        sc.pp.log1p(adata)
        sc.pp.highly_variable_genes(adata, n_top_genes=3000, flavor="seurat_v3", layer="counts", batch_key=batch_key)

    Genes that are not highly variable are kept. :func:`dice.tl.train_prior` learns from the marked genes and scales
    them. :func:`correct_batches` corrects batch effects as in the paper. If anything fails, `adata` does not change.

    Parameters
    ----------
    adata
        Raw counts of cells x genes, in memory; gene symbols in ``var_names``.
    batch_key
        Column of ``adata.obs`` with batches. Genes are then ranked within each batch, and sorted by their median rank.
    n_top_genes
        Number of highly variable genes. If there are fewer genes, all are marked.
    min_genes
        Cells with fewer detected genes are removed.
    min_cells
        Genes detected in fewer of the remaining cells are removed.
    max_pct_mt
        Cells with a higher percentage of counts from genes named ``MT-*`` or ``mt-*`` are removed.
    layer
        Layer that holds the counts, instead of ``adata.X``.
    copy
        Return a new object instead of changing `adata`.

    Returns
    -------
    None, or the new object. Removes cells and genes, and sets:

    ``adata.X`` (n_obs, n_vars)
        log(1 + counts per 10,000), in the same kind of matrix as the counts. A sparse array becomes a CSR matrix.
    ``adata.layers["counts"]`` (n_obs, n_vars)
        The counts.
    ``adata.var["highly_variable"]`` bool
        With scanpy's ``highly_variable_rank``, ``means``, ``variances`` and ``variances_norm``, with `batch_key` also
        ``highly_variable_nbatches``, and with ``adata.uns["hvg"]``.
    ``adata.obs["pct_counts_mt"]`` float
        With the other columns of scanpy's quality control in ``obs`` and ``var``: ``n_genes``,
        ``n_genes_by_counts``, ``total_counts``, ``total_counts_mt``; ``n_cells``, ``mt``,
        ``n_cells_by_counts``, ``mean_counts``, ``pct_dropout_by_counts``, ``total_counts``.
    ``adata.uns["log1p"]``
        scanpy's note that ``X`` is logged.
    ``adata.uns["dice_prepare"]``
        ``params``, and the numbers of cells and genes after each step: ``n_cells`` (``input``, ``min_genes``,
        ``max_pct_mt``) and ``n_genes`` (``input``, ``min_cells``, ``highly_variable``).

    Examples
    --------
    >>> import anndata as ad, numpy as np, dice
    >>> rng = np.random.default_rng(0)
    >>> cells = ad.AnnData(rng.poisson(rng.gamma(2.0, size=600), size=(60, 600)))
    >>> dice.pp.prepare(cells, n_top_genes=100)
    >>> cells.shape, int(cells.var["highly_variable"].sum())
    ((60, 600), 100)
    """
    call: dict[str, Any] = {
        "layer": layer,
        "batch_key": batch_key,
        "n_top_genes": whole_number("n_top_genes", n_top_genes),
        "min_genes": whole_number("min_genes", min_genes, least=0),
        "min_cells": whole_number("min_cells", min_cells, least=0),
        "max_pct_mt": number("max_pct_mt", max_pct_mt, least=0),
    }
    check_unique(adata.var_names, "adata.var_names")
    if batch_key is not None:
        read_batches(adata, batch_key)
    check_counts(adata, layer)
    result, left = prepared(adata, **call)
    record = {"params": as_plain(call | {"target_sum": TARGET_SUM})} | left
    write(result, Slots(uns={"dice_prepare": record}), copy=False)
    return replace(adata, result, copy=copy)
