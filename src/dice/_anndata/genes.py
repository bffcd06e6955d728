"""Matching of a query's genes to a prior's, by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice._errors import InputError


@dataclass(frozen=True)
class GeneMatch:
    """Where the prior's genes are in the query.

    ``query`` holds positions in the query and ``prior`` positions in the prior of the genes that both have, in
    the prior's order.
    """

    query: NDArray[np.intp]
    prior: NDArray[np.intp]
    n_prior: int

    @property
    def complete(self) -> bool:
        return len(self.prior) == self.n_prior

    def __str__(self) -> str:
        return f"{len(self.prior)}/{self.n_prior} genes found"


def match_genes(adata: AnnData, genes: NDArray[np.object_]) -> GeneMatch:
    """Find the prior's `genes` among ``adata.var_names``; order and extra genes do not matter."""
    names = pd.Index(adata.var_names.astype(str))
    check_unique(names, "adata.var_names")
    positions = names.get_indexer(pd.Index(genes))
    prior = np.flatnonzero(positions >= 0)
    if not len(prior):
        raise InputError(
            f"No gene is shared: the prior has names like {list(genes[:3])}, adata.var_names are like "
            f"{list(names[:3])}; set adata.var_names to the same kind of identifier."
        )
    return GeneMatch(positions[prior], prior, len(genes))


def check_unique(names: pd.Index, where: str) -> None:
    """Duplicate gene names cannot be matched: name five of them."""
    if not names.is_unique:
        doubles = list(names[names.duplicated()].unique()[:5])
        raise InputError(
            f"{where} holds duplicate names, for example {doubles}: call adata.var_names_make_unique() first."
        )
