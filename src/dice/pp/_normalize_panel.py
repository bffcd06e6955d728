"""Normalise a panel and its reference on the genes that both have."""

from anndata import AnnData

from dice._data.genes import genes_in_both
from dice._data.values import PANEL_GENES, normalise_pair
from dice._data.write import Slots, all_or_nothing, check_writable, write
from dice._errors import InputError
from dice._keys import PriorKeys
from dice.options import Options


def normalize_panel(
    adata: AnnData, reference: AnnData, *, size_key: str | None = None, layer: str | None = None,
    gene_key: str | None = None,
) -> None:  # fmt: skip
    """Normalise a query of few genes, and its reference, on the genes that both have.

    In both data sets, each cell is divided by its counts in these genes, multiplied by the counts of a median query
    cell, and logged. :func:`dice.tl.annotate` does this by itself. No cell is filtered.

    Parameters
    ----------
    adata
        The query, such as the table of a SpatialData object: raw counts or log-normalised expression.
    reference
        The reference: raw counts or log-normalised expression.
    size_key
        Column of ``adata.obs`` with volumes or areas of the cells. Query cells are then divided by their size instead
        of their counts, which keeps the difference between cells with many and with few transcripts.
    layer
        Layer of both objects to use instead of ``X``.
    gene_key
        Column of ``adata.var`` with gene names of the same kind as in the reference, instead of ``adata.var_names``.

    Returns
    -------
    None. Sets:

    ``adata.layers["dice_panel"]``, ``reference.layers["dice_panel"]``
        Log-normalised values of the shared genes; zero for all other genes.
    ``reference.var["dice_genes"]`` bool
        The shared genes, for ``train_prior(reference, mask_var="dice_genes", layer="dice_panel")``.

    Examples
    --------
    >>> import anndata, dice, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> cells = [anndata.AnnData(rng.poisson(2, (50, n)).astype("float32")) for n in (40, 90)]
    >>> dice.pp.normalize_panel(*cells)
    >>> int(cells[1].var["dice_genes"].sum())
    40
    """
    check_writable(adata, copy=False, reference=reference)
    check_writable(reference, copy=False, who="reference")
    options = Options(layer=layer, gene_key=gene_key)
    shared = genes_in_both(adata, reference, options)
    if not 0 < shared.sum() <= PANEL_GENES:
        raise InputError(f"{shared.sum()} genes are shared, but a panel has at most {PANEL_GENES}: use sc.pp instead.")
    with all_or_nothing(adata, reference):
        normalise_pair(adata, reference, shared, options, size_key)
        write(reference, Slots(var={PriorKeys().genes: shared}), copy=False)
