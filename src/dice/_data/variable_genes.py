"""Highly variable genes, with errors that name the fix."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._data.matrix import Matrix
from dice._data.preprocessing import is_counts
from dice._errors import InputError

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
