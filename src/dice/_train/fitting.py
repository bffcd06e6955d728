"""Whether a reference has a prior that a query can use, or both are fit for one that is yet to be learned."""

from __future__ import annotations

import os

import numpy as np
from anndata import AnnData

from dice import _log
from dice._data.genes import FEW, share_of_genes
from dice._data.matrix import Matrix
from dice._data.read import names
from dice._data.store import Prior, find_prior
from dice._data.value_checks import matrix_statistics
from dice._keys import PriorKeys
from dice._query.reading import opened
from dice._types import Mask
from dice.options import Options


def fitting_prior(
    adata: AnnData, reference: AnnData | Prior | str | os.PathLike[str], prior_key: str, gene_key: str | None
) -> Prior | None:
    """The prior of a reference, if the query has its genes; None where one is to be learned from the cells.

    A prior alone, or a file, is taken as it is: there are no cells to learn another from.
    """
    if not isinstance(reference, AnnData):
        return find_prior(reference, key=prior_key)
    keys = PriorKeys(prior_key)
    if keys.uns in names(reference, "uns") and not reference.n_obs:
        return find_prior(reference, key=prior_key)
    if keys.uns not in names(reference, "uns") or keys.split not in names(reference, "obs"):
        return None
    prior = find_prior(reference, key=prior_key)
    share = share_of_genes(adata, prior.genes, gene_key=gene_key)
    found = f"reference.uns[{keys.uns!r}] holds a prior of {len(prior.genes):,} genes, and the query has {share:.0%}"
    if share < FEW:
        _log.say(f"{found} of them: another one is learned in its place.")
        return None
    _log.say(f"{found} of them: it is used (prior_key='new' would learn another beside it).")
    return prior


def look_ahead(adata: AnnData, reference: AnnData, genes: Mask, options: Options, layer: str | None) -> None:
    """Find what is wrong with either object before a prior is learned on some `genes` (n_vars,) of the reference.

    `layer` is that of the reference. Calls under that prior would find the same, minutes later.
    """
    known = Matrix(reference, layer=layer, genes=np.flatnonzero(genes), who="reference")
    known.check_finite()
    learned = reference.var_names.to_numpy(dtype=object)[genes]
    _, matrix, _, _ = opened(adata, options, learned, matrix_statistics(known.sample(), known.genes))
    matrix.check_finite()
