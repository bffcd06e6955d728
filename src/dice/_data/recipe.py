"""The paper's preprocessing of raw counts, by scanpy's own functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scanpy as sc
from anndata import AnnData
from scipy import sparse

from dice import _log
from dice._data.batches import find_technologies
from dice._data.matrix import Matrix
from dice._data.variable_genes import as_matrix, seurat_v3
from dice._errors import InputError

TARGET_SUM = 1e4
MITOCHONDRIAL = ("MT-", "mt-")
#: Share of the cells from which on their loss is a warning: more than damaged cells alone would be.
MANY_LOST = 0.1


def prepared(
    adata: AnnData, *, layer: str | None, batch_key: str | None, n_top_genes: int, min_genes: int, min_cells: int,
    max_pct_mt: float,
) -> tuple[AnnData, dict[str, Any]]:  # fmt: skip
    """The prepared cells in an object of their own, and how many cells and genes each step left."""
    result = _with_counts(adata, layer)
    sc.pp.filter_cells(result, min_genes=min_genes)
    n_cells = {"input": adata.n_obs, "min_genes": result.n_obs}
    _check_left(result, f"min_genes={min_genes}")
    sc.pp.filter_genes(result, min_cells=min_cells)
    _check_left(result, f"min_cells={min_cells}")
    result = _filter_mitochondrial(result, max_pct_mt)
    _check_left(result, f"max_pct_mt={max_pct_mt}")
    result.layers["counts"] = result.X.copy()
    sc.pp.normalize_total(result, target_sum=TARGET_SUM)
    sc.pp.log1p(result)
    if n_top_genes < result.n_vars:
        warn_of_technologies(result, batch_key)
        seurat_v3(result, batch_key=batch_key, layer="counts", n_top_genes=n_top_genes)
    else:
        _log.info(f"All {result.n_vars} genes are kept as highly variable (n_top_genes={n_top_genes}).")
        result.var["highly_variable"] = True
    n_variable = int(result.var["highly_variable"].sum())
    _log.info(
        f"prepare kept {result.n_obs} of {adata.n_obs} cells and {result.n_vars} of {adata.n_vars} genes, {n_variable} "
        "of them highly variable."
    )
    n_genes = {"input": adata.n_vars, "min_cells": result.n_vars, "highly_variable": n_variable}
    return result, {"n_cells": n_cells | {"max_pct_mt": result.n_obs}, "n_genes": n_genes}


def log_normalised(adata: AnnData, layer: str | None, target_sum: float, who: str) -> Any:
    """log(1 + counts per `target_sum`) of counts in ``X`` or a layer, which stay as they are; `who` as in errors."""
    matrix = Matrix(adata, layer=layer, who=who)
    data = matrix.data
    if not isinstance(data, np.ndarray) and not sparse.issparse(data):
        raise InputError(
            f"{matrix.where} holds raw counts that are not in memory: call {who} = {who}.to_memory() first, or "
            "normalise them with sc.pp.normalize_total and sc.pp.log1p."
        )
    bare = AnnData((sparse.csr_matrix(data) if sparse.issparse(data) else np.asarray(data)).astype(np.float32))
    sc.pp.normalize_total(bare, target_sum=target_sum)
    sc.pp.log1p(bare)
    return bare.X


def warn_of_technologies(adata: AnnData, batch_key: str | None) -> None:
    """Say that variable genes should be chosen within batches, where log-normalised cells mix technologies."""
    mixed = find_technologies(adata) if batch_key is None else None
    if mixed is not None:
        _log.warn(
            f"adata.obs[{mixed[0]!r}] explains {mixed[1]:.0%} of the variance, as technologies do, so that variable "
            f"genes may tell these apart rather than types: pass batch_key={mixed[0]!r}."
        )


def _with_counts(adata: AnnData, layer: str | None) -> AnnData:
    """A copy whose ``X`` holds the counts, in a form that scanpy's functions take."""
    result = adata.copy()
    if layer is not None:
        result.X = result.layers[layer].copy()
    if result.X.dtype == bool:  # scanpy divides in place
        result.X = result.X.astype(np.float32)
    result.X = as_matrix(result.X)
    # scanpy's note that X is logged: it was true of what X held before.
    result.uns.pop("log1p", None)
    return result


def _filter_mitochondrial(result: AnnData, max_pct_mt: float) -> AnnData:
    result.var["mt"] = result.var_names.str.startswith(MITOCHONDRIAL)
    if not result.var["mt"].any():
        _log.say(
            "No gene is named MT-* or mt-*, so that no cell is removed for its mitochondrial share: put gene symbols "
            f"into var_names if there are any, which are now like {list(result.var_names[:3])}."
        )
    sc.pp.calculate_qc_metrics(result, qc_vars=["mt"], percent_top=None, log1p=False, inplace=True)
    kept = ~(result.obs["pct_counts_mt"] > max_pct_mt)
    if 0 < kept.mean() < 1 - MANY_LOST:
        _log.warn(
            f"{(~kept).sum()} of {len(kept)} cells ({(~kept).mean():.0%}) are removed, as more than {max_pct_mt:g} % "
            f"of their counts are mitochondrial (the median cell has {result.obs['pct_counts_mt'].median():.1f} %): "
            "pass a larger max_pct_mt to keep them."
        )
    return result[kept].copy()


def _check_left(result: AnnData, cause: str) -> None:
    if not result.n_obs or not result.n_vars:
        raise InputError(f"{cause} leaves {result.n_obs} cells and {result.n_vars} genes: choose a milder value.")
