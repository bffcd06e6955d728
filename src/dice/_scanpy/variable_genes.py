"""Highly variable genes of raw counts, with errors that name the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scanpy as sc
from scipy import sparse

from dice._errors import InputError

if TYPE_CHECKING:
    from anndata import AnnData

#: Genes that must vary within a batch. With fewer than four, the loess fit crashes the interpreter.
MIN_VARYING = 10


def seurat_v3(adata: AnnData, *, batch_key: str | None = None, **options: Any) -> Any:
    """``sc.pp.highly_variable_genes(adata, flavor="seurat_v3")`` for counts in ``X`` or a layer."""
    advice = "use more cells" if batch_key is None else "merge small batches, or batch_key=None"
    layer = options.get("layer")
    counts = adata.X if layer is None else adata.layers[layer]
    for name, rows in _groups(adata, batch_key).items():
        if _n_varying(counts[rows]) < MIN_VARYING:
            raise InputError(
                f"Hardly any gene varies in the {len(rows)} cells of {name}, too few to find "
                f"highly variable ones: {advice}."
            )
    try:
        return sc.pp.highly_variable_genes(adata, flavor="seurat_v3", batch_key=batch_key, **options)
    except ValueError as error:  # from the loess fit
        raise InputError(
            f"Highly variable genes cannot be found, as the trend of variance over mean cannot be "
            f"fitted ({error}): {advice}."
        ) from error


def _groups(adata: AnnData, batch_key: str | None) -> dict[str, Any]:
    if batch_key is None:
        return {"the data set": np.arange(adata.n_obs)}
    indices = adata.obs.groupby(batch_key, observed=True).indices
    return {f"batch {name!r}": rows for name, rows in indices.items()}


def _n_varying(values: Any) -> int:
    extremes = values.max(axis=0), values.min(axis=0)
    high, low = (x.toarray() if sparse.issparse(x) else x for x in extremes)
    return int(np.count_nonzero(high != low))
