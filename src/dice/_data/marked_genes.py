"""Whether the variable genes that an object has marked were chosen among the genes that it still has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from anndata import AnnData

#: Share of the marked genes that must be gone before that is said: a filter of a few genes changes nothing.
LOST = 0.1
#: Mean of scanpy's normalised dispersions, which is 0 over the genes that they were computed from (0.000 on two data
#: sets with and without batches): 0.013 and more once genes of a query, or variable genes, were picked from them.
DISPERSION = 0.01
#: Median of the normalised variances of flavor seurat_v3 with batches: 0.82 to 0.92 over all genes, and over those that
#: a query has; 1.06 and more over variable genes.
VARIANCE = 1.0


def left_over(adata: AnnData) -> bool:
    """Whether ``var["highly_variable"]`` is left over from before genes were removed.

    scanpy keeps no record of the genes that it chose from, but what it writes beside shows it: ranks with gaps, and
    dispersions that are no longer centred. Flavor ``"cell_ranger"`` leaves no such trace.
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
