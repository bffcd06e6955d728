"""The paper's preprocessing of raw counts and the choice of variable genes, by scanpy's own functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._data.batches import find_technologies
from dice._data.matrix import Matrix
from dice._data.sources import is_counts
from dice._errors import InputError
from dice._model.counts import TARGET_SUM

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


#: Genes that must vary within a batch. With fewer than four, the loess fit crashes the interpreter.
MIN_VARYING = 10


def variable_genes(
    adata: AnnData, n_top_genes: int, who: str, *, layer: str | None = None, batches: pd.Categorical | None = None,
    counts: bool = True,
) -> NDArray[np.bool_]:  # fmt: skip
    """Which genes are highly variable, by counts where there are any; `who` names the data set in errors.

    Counts are looked for in ``layers["counts"]``, else in the `layer` or in ``X``; without `counts` the expression in
    the latter is taken. With `batches`, genes are ranked within each.
    """
    if n_top_genes >= adata.n_vars:
        return np.ones(adata.n_vars, dtype=bool)
    matrix = Matrix(adata, layer="counts" if counts and "counts" in adata.layers else layer, who=who)
    counts = counts and all(is_counts(chunk) for chunk in matrix)
    if not counts and any(chunk.min() < 0 for chunk in matrix):
        raise InputError(f"{who} holds negative values: pass it before scaling, log-normalised or as raw counts.")
    # A bare object, so that scanpy neither sees nor writes anything else of the user's.
    bare = AnnData(as_matrix(matrix.data), uns={"log1p": adata.uns["log1p"]} if "log1p" in adata.uns else {})
    batch_key = None
    if batches is not None:
        batch_key, bare.obs["batch"] = "batch", batches
    _log.info(f"{who}: variable genes by flavor {'seurat_v3' if counts else 'seurat'}.")
    # The flavor is said, as a preset of scanpy's, from 1.13 on, may choose another.
    find = seurat_v3 if counts else partial(sc.pp.highly_variable_genes, flavor="seurat")
    try:
        found = find(bare, n_top_genes=n_top_genes, batch_key=batch_key, inplace=False)
        return found["highly_variable"].to_numpy(dtype=bool)
    except (IndexError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"Highly variable genes cannot be found in {who} ({error}): use more cells.") from error


def as_matrix(values: Any) -> Any:
    """Values in a form that scanpy's functions take: they know sparse matrices, and no sparse arrays."""
    return sparse.csr_matrix(values) if isinstance(values, sparse.sparray) else values


def seurat_v3(adata: AnnData, *, batch_key: str | None = None, **options: Any) -> Any:
    """``sc.pp.highly_variable_genes(adata, flavor="seurat_v3")`` for counts in ``X`` or a layer."""
    advice = "use more cells" if batch_key is None else "merge small batches, or batch_key=None"
    layer = options.get("layer")
    counts = adata.X if layer is None else adata.layers[layer]
    for name, rows in _groups(adata, batch_key).items():
        if _n_varying(counts[rows]) < MIN_VARYING:
            raise InputError(
                f"Hardly any gene varies in the {len(rows)} cells of {name}, too few to find highly variable ones: "
                f"{advice}."
            )
    try:
        return sc.pp.highly_variable_genes(adata, flavor="seurat_v3", batch_key=batch_key, **options)
    except ValueError as error:  # from the loess fit
        raise InputError(
            "Highly variable genes cannot be found, as the trend of variance over mean cannot be fitted "
            f"({error}): {advice}."
        ) from error


def _groups(adata: AnnData, batch_key: str | None) -> dict[str, Any]:
    if batch_key is None:
        return {"the data set": np.arange(adata.n_obs)}
    indices = adata.obs.groupby(batch_key, observed=True).indices
    return {f"batch {name!r}": rows for name, rows in indices.items()}


def _n_varying(values: Any) -> int:
    high, low = (x.toarray() if sparse.issparse(x) else x for x in (values.max(axis=0), values.min(axis=0)))
    return int(np.count_nonzero(high != low))


#: Share of the marked genes that must be gone for a warning: a filter of a few genes changes nothing.
LOST = 0.1
#: Mean of scanpy's normalised dispersions, which is 0 over the genes that they were computed from (0.000 on two data
#: sets with and without batches): 0.013 and more once genes of a query, or variable genes, were picked from them.
DISPERSION = 0.01
#: Median of the normalised variances of flavor seurat_v3 with batches: 0.82 to 0.92 over all genes, and over those that
#: a query has; 1.06 and more over variable genes.
VARIANCE = 1.0


def left_over(adata: AnnData) -> bool:
    """Whether ``var["highly_variable"]`` is left over from before genes were removed.

    scanpy does not record the genes that it chose from, but its other columns show removed genes: ranks have gaps, and
    dispersions are not centred. Marks of the flavor ``"cell_ranger"`` cannot be checked in this way.
    """
    marked = np.asarray(adata.var["highly_variable"])
    if marked.dtype != bool or marked.all() or not marked.any():
        return False
    n_marked = int(marked.sum())
    batches = "highly_variable_nbatches" in adata.var
    if "highly_variable_rank" in adata.var and not batches:
        n_ranked = np.nanmax(adata.var["highly_variable_rank"].to_numpy(dtype=float)[marked], initial=-1) + 1
        return bool(n_marked < (1 - LOST) * n_ranked)
    if "variances_norm" in adata.var and batches:
        return bool(np.nanmedian(adata.var["variances_norm"].to_numpy(dtype=float)) > VARIANCE)
    flavor = adata.uns.get("hvg", {}).get("flavor") if isinstance(adata.uns.get("hvg"), Mapping) else None
    if "dispersions_norm" in adata.var and flavor == "seurat":
        return bool(abs(np.nanmean(adata.var["dispersions_norm"].to_numpy(dtype=float))) > DISPERSION)
    return False
