"""The paper's preprocessing of raw counts."""

from __future__ import annotations

import numpy as np
import scanpy as sc
from anndata import AnnData
from scipy import sparse

from dice import _log
from dice._anndata.counts import is_counts, read_batches
from dice._anndata.genes import check_unique
from dice._anndata.matrix import Matrix
from dice._anndata.write import plain_params
from dice._arguments import number, whole_number
from dice._errors import InputError
from dice._scanpy.variable_genes import seurat_v3

TARGET_SUM = 1e4
MITOCHONDRIAL = ("MT-", "mt-")


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

    The same as these scanpy steps, typed by hand::

        sc.pp.filter_cells(adata, min_genes=200)
        sc.pp.filter_genes(adata, min_cells=3)
        adata.var["mt"] = adata.var_names.str.startswith(("MT-", "mt-"))
        sc.pp.calculate_qc_metrics(adata, qc_vars=["mt"], percent_top=None, log1p=False, inplace=True)
        adata = adata[adata.obs["pct_counts_mt"] <= 15].copy()
        adata.layers["counts"] = adata.X.copy()
        sc.pp.normalize_total(adata, target_sum=1e4)
        sc.pp.log1p(adata)
        sc.pp.highly_variable_genes(adata, n_top_genes=3000, flavor="seurat_v3", layer="counts", batch_key=batch_key)

    Genes that are not highly variable stay; :func:`dice.tl.train_prior` learns from the marked
    ones, and scales them. :func:`correct_batches` does what the paper does against batch effects.
    If anything fails, `adata` is as it was.

    Parameters
    ----------
    adata
        Raw counts of cells x genes, in memory; gene symbols in ``var_names``.
    batch_key
        Column of ``adata.obs``. Genes are then ranked within each batch, and by median rank.
    n_top_genes
        Number of highly variable genes; all genes are marked if there are no more than this.
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
        log(1 + counts per 10,000), of the kind of matrix that held the counts (a sparse array
        becomes a CSR matrix).
    ``adata.layers["counts"]`` (n_obs, n_vars)
        The counts.
    ``adata.var["highly_variable"]`` bool
        With scanpy's ``highly_variable_rank``, ``means``, ``variances``, ``variances_norm``, with
        `batch_key` also ``highly_variable_nbatches``, and ``adata.uns["hvg"]``.
    ``adata.obs["pct_counts_mt"]`` float
        With the other columns of scanpy's quality control in ``obs`` and ``var``: ``n_genes``,
        ``n_genes_by_counts``, ``total_counts``, ``total_counts_mt``; ``n_cells``, ``mt``,
        ``n_cells_by_counts``, ``mean_counts``, ``pct_dropout_by_counts``, ``total_counts``.
    ``adata.uns["log1p"]``
        scanpy's note that ``X`` is logged.
    ``adata.uns["dice_prepare"]``
        ``params``, and how many cells and genes each step left: ``n_cells`` (``input``,
        ``min_genes``, ``max_pct_mt``) and ``n_genes`` (``input``, ``min_cells``,
        ``highly_variable``).

    Examples
    --------
    >>> import anndata as ad, numpy as np, dice
    >>> rng = np.random.default_rng(0)
    >>> cells = ad.AnnData(rng.poisson(rng.gamma(2.0, size=600), size=(60, 600)))
    >>> dice.pp.prepare(cells, n_top_genes=100)
    >>> cells.shape, int(cells.var["highly_variable"].sum())
    ((60, 600), 100)
    """
    n_top_genes = whole_number("n_top_genes", n_top_genes)
    min_genes, min_cells = whole_number("min_genes", min_genes, least=0), whole_number("min_cells", min_cells, least=0)
    max_pct_mt = number("max_pct_mt", max_pct_mt, least=0)
    _check(adata, layer, batch_key)
    result = adata.copy()
    if layer is not None:
        result.X = result.layers[layer].copy()
    if result.X.dtype == bool:  # scanpy divides in place
        result.X = result.X.astype(np.float32)
    if isinstance(result.X, sparse.sparray):  # scanpy's quality control knows sparse matrices only
        result.X = sparse.csr_matrix(result.X)
    # The note speaks of the X that the counts have just replaced.
    result.uns.pop("log1p", None)

    sc.pp.filter_cells(result, min_genes=min_genes)
    left = {"input": adata.n_obs, "min_genes": result.n_obs}
    _check_left(result, f"min_genes={min_genes}")
    sc.pp.filter_genes(result, min_cells=min_cells)
    _check_left(result, f"min_cells={min_cells}")
    result = _filter_mitochondrial(result, max_pct_mt)
    _check_left(result, f"max_pct_mt={max_pct_mt}")

    result.layers["counts"] = result.X.copy()
    sc.pp.normalize_total(result, target_sum=TARGET_SUM)
    sc.pp.log1p(result)
    _mark_variable_genes(result, n_top_genes, batch_key)

    chosen = int(result.var["highly_variable"].sum())
    result.uns["dice_prepare"] = {
        "params": plain_params(
            batch_key=batch_key,
            n_top_genes=n_top_genes,
            min_genes=min_genes,
            min_cells=min_cells,
            max_pct_mt=max_pct_mt,
            layer=layer,
            target_sum=TARGET_SUM,
        ),
        "n_cells": left | {"max_pct_mt": result.n_obs},
        "n_genes": {"input": adata.n_vars, "min_cells": result.n_vars, "highly_variable": chosen},
    }
    _log.info(
        f"prepare kept {result.n_obs} of {adata.n_obs} cells and {result.n_vars} of {adata.n_vars} "
        f"genes, {chosen} of them highly variable."
    )
    if copy:
        return result
    # Everything has succeeded: the user's object becomes the result in one step.
    AnnData.__init__(adata, result)
    return None


def _check(adata: AnnData, layer: str | None, batch_key: str | None) -> None:
    check_unique(adata.var_names, "adata.var_names")
    if batch_key is not None:
        read_batches(adata, batch_key)
    matrix = Matrix(adata, layer=layer)
    if not isinstance(matrix.data, np.ndarray) and not sparse.issparse(matrix.data):
        raise InputError("The counts are not in memory: call adata = adata.to_memory() first.")
    if not is_counts(matrix):
        where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
        others = [name for name in adata.layers if name != layer]
        raise InputError(
            f"{where} does not hold raw counts (whole numbers from 0 on), but they are needed: "
            f"name the layer that holds them with layer= (available: {others}), or start from the "
            "unnormalised matrix."
        )


def _check_left(result: AnnData, cause: str) -> None:
    if not result.n_obs or not result.n_vars:
        raise InputError(f"{cause} leaves {result.n_obs} cells and {result.n_vars} genes: choose a milder value.")


def _filter_mitochondrial(result: AnnData, max_pct_mt: float) -> AnnData:
    result.var["mt"] = result.var_names.str.startswith(MITOCHONDRIAL)
    if not result.var["mt"].any():
        _log.info("No gene is named MT-* or mt-*: no cell is removed for its mitochondrial share.")
    sc.pp.calculate_qc_metrics(result, qc_vars=["mt"], percent_top=None, log1p=False, inplace=True)
    return result[~(result.obs["pct_counts_mt"] > max_pct_mt)].copy()


def _mark_variable_genes(result: AnnData, n_top_genes: int, batch_key: str | None) -> None:
    if n_top_genes >= result.n_vars:
        _log.info(f"All {result.n_vars} genes are kept as highly variable (n_top_genes={n_top_genes}).")
        result.var["highly_variable"] = True
        return
    seurat_v3(result, batch_key=batch_key, layer="counts", n_top_genes=n_top_genes)
