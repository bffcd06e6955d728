"""The genes that a prior is learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._anndata.checks import gene_mask, named_mask
from dice._anndata.marked_genes import left_over
from dice._anndata.matrix import Matrix
from dice._scanpy.variable_genes import variable_genes
from dice._types import Codes

#: Genes that are chosen where the user says no number, as in the paper and in :func:`dice.pp.prepare`.
N_TOP_GENES = 3000
#: Genes up to which all are used where a choice of theirs does not hold: so many did somebody choose himself
#: (:func:`dice.pp.shared_genes` takes the 5,000 most variable of each data set).
MOST_GENES = 5000


def learned_genes(
    adata: AnnData, mask_var: str | NDArray[np.bool_] | None, *, layer: str | None
) -> tuple[Codes | None, str]:
    """Positions of the genes to learn from (None: all), and which these are in words.

    scanpy's column of variable genes, where ``"auto"`` has found one that was chosen among other genes, is chosen
    again.
    """
    named = named_mask(adata, mask_var)
    auto = isinstance(mask_var, str) and mask_var == "auto"
    if auto and named is not None and left_over(adata):
        return _chosen_again(adata, layer)
    genes = gene_mask(adata, named)
    if genes is None:
        return genes, "all"
    return genes, f"marked in adata.var[{named!r}]" if isinstance(named, str) else "of the mask that was passed"


def _chosen_again(adata: AnnData, layer: str | None) -> tuple[Codes | None, str]:
    """Variable genes among those that there are, or all of them where they are few; with a warning."""
    marked = gene_mask(adata, "highly_variable")
    stale = (
        f"adata.var['highly_variable'] was chosen before genes were removed, and marks {0 if marked is None else len(marked)} of the "
        f"{adata.n_vars} that are left"
    )
    keep = "Pass mask_var='highly_variable' to keep to it, or choose variable genes after removing others."
    if adata.n_vars <= MOST_GENES:
        _log.warn(f"{stale}: all are used. {keep}")
        return None, "all"
    if not _in_memory(Matrix(adata, layer=layer).data):
        _log.warn(f"{stale}: these are used all the same, as the matrix is not in memory. {keep}")
        return marked, "marked in adata.var['highly_variable']"
    _log.warn(f"{stale}: the {N_TOP_GENES} most variable ones are chosen again. {keep}")
    return np.flatnonzero(variable_genes(adata, N_TOP_GENES, "adata", layer=layer)), "chosen again"


def _in_memory(data: Any) -> bool:
    return isinstance(data, np.ndarray) or sparse.issparse(data)
