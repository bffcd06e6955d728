"""Choice of the genes that a prior is learned from, and of a stored prior whose genes a query has."""

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data.checks import read_batches
from dice._data.genes import FEW, by_name, share_of_genes
from dice._data.matrix import Matrix
from dice._data.read import names
from dice._data.recipe import find_technologies, variable_genes
from dice._data.store import Prior, Reference, find_prior
from dice._data.value_checks import matrix_statistics, refuse_wild
from dice._keys import PriorKeys
from dice._query.query import opened
from dice._types import Codes, Mask
from dice.options import Options


def choose_genes(
    reference: AnnData, shared: NDArray[np.bool_], *, n_top_genes: int, batch_key: str | None, layer: str | None,
    labels: Codes | None,
) -> tuple[Mask, str]:  # fmt: skip
    """Return a mask (n_vars,) of the most variable of the `shared` genes, and a description of them.

    Genes are ranked by log-normalised values (scanpy's flavor "seurat"), within the batches of the reference if it has
    several. Over atlas -> Baron, cells -> nuclei and bmmc sites (one seed), accuracy / macro-F1 of labels were
    .819 / .774 with ranks over all cells and .831 / .785 with ranks within technologies or sites. With ranks by counts
    ("seurat_v3") they were .806 / .753 and .836 / .792. Ranks within batches were worse for the first pair only:
    .947 / .900 instead of .958 / .931.
    """
    n_shared = int(shared.sum())
    if n_top_genes >= n_shared:
        return shared, f"{n_shared:,} of the {n_shared:,} that both have"
    if batch_key == "auto":
        mixed = find_technologies(reference, layer=layer, labels=labels, who="reference")
        batch_key = None if mixed is None else mixed[0]
        if mixed is not None:
            _log.say(
                f"reference.obs[{mixed[0]!r}] explains {mixed[1]:.0%} of the variance, like a technology: variable "
                "genes are ranked within each (reference_batch_key=None ranks them over all cells)."
            )
    batches = None if batch_key is None else read_batches(reference, batch_key, "reference")
    genes = by_name(reference, shared)
    cells = reference[:, genes]
    chosen = genes[variable_genes(cells, n_top_genes, "reference", layer=layer, batches=batches, counts=False)]
    ranked = "" if batch_key is None else f", ranked within reference.obs[{batch_key!r}]"
    return np.isin(np.arange(reference.n_vars), chosen), f"{len(chosen):,} of the {n_shared:,} that both have{ranked}"


def fitting_prior(adata: AnnData, reference: Reference, prior_key: str, options: Options) -> Prior | None:
    """Return the stored prior of a reference if the query has its genes, or None if a new one must be trained.

    A reference that is a prior without cells, or a file of one, is always used.
    """
    keys, n_cells = PriorKeys(prior_key), 0
    if isinstance(reference, AnnData):
        n_cells, trained = reference.n_obs, keys.split in names(reference, "obs")
        if keys.uns not in names(reference, "uns") or (n_cells and not trained):
            return None
    prior = find_prior(reference, key=prior_key)
    if not n_cells:
        return prior
    share = share_of_genes(adata, prior.genes, options)
    found = f"reference.uns[{keys.uns!r}] holds a prior of {len(prior.genes):,} genes, and the query has {share:.0%}"
    if share < FEW:
        _log.say(f"{found} of them: a new prior is trained instead.")
        return None
    _log.say(f"{found} of them: it is used (prior_key='new' would train another one).")
    return prior


def look_ahead(adata: AnnData, reference: AnnData, genes: Mask, options: Options, layer: str | None) -> None:
    """Check query and reference before a prior is trained on the `genes` (n_vars,) of the reference.

    Otherwise the same errors would occur minutes later, when the prior is used. `layer` is the layer of the reference.
    """
    known = Matrix(reference, layer=layer, genes=by_name(reference, genes), who="reference")
    if options.check.values:
        refuse_wild(known, known.sample())
    known.check_values()
    learned = reference.var_names.to_numpy(dtype=object)[known.genes]
    _, matrix, _ = opened(adata, options, learned, matrix_statistics(known.sample(), known.genes))
    matrix.check_values()
