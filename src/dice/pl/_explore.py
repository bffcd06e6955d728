"""The interactive page of a query, for notebooks."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from anndata import AnnData

from dice._data import read
from dice._data.files import files_of
from dice._errors import DiceError, DiceWarning
from dice._plot import Page, explorer

if TYPE_CHECKING:
    from dice._data.store import Reference

#: Number of genes that the page shows for each label.
N_GENES = 6


def explore(
    adata: AnnData,
    reference: "Reference | None" = None,
    *,
    color: str | None = None,
    use_rep: str | Sequence[str] = ("X_dice_pca", "X_dice"),
    prior_key: str = "dice",
) -> Page:
    """Explore a query in a notebook: a map, labels at any error rate, trees, probabilities, genes and corrections.

    At first the map shows the status of the labels. A slider sets the error rate. The page then shows how many cells
    keep their label, get a coarser label or get none. A click or a lasso selects cells and shows their probabilities by
    level and by view, their prediction sets and the genes behind their labels. You can give selected cells another
    label; the page saves corrected labels as csv, with the Python lines that apply them. The map shows at most 50,000
    cells, chosen at random; lasso, tables and corrections use all cells.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.annotate`, or after :func:`dice.tl.denoise` and any of the steps that follow it.
    reference
        The reference, prior or path that the labels come from, to show the genes behind labels. None shows no genes.
    color
        Column of ``obs`` or gene that colours the map at first. None uses the status of transferred labels or, without
        these, the first column of labels.
    use_rep
        Key or keys of ``obsm`` to switch between.
    prior_key
        Key of the prior in the reference.

    Returns
    -------
    The page. Notebooks show it, and ``.save("report.html")`` writes it to a file. The coordinates of the maps are
    stored as by :func:`dice.pl.comparison`, unless `adata` is a view.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> dice.pl.explore(cells, use_rep="U_true")
    Page of 300 cells: show it in a notebook, or write it with .save('report.html').
    """
    columns = explorer.read_columns(adata, color)
    color = explorer.first_color(adata, columns, status=True) if color is None else color
    labels = explorer.transferred(adata)
    genes = {key: found for key in labels if (found := _genes(adata, reference, key, prior_key)) is not None}
    layers = [read.record(adata, key)["call"].get("layer") for key in genes]
    shown = [str(gene) for table in genes.values() for gene in table["gene"]]
    content = explorer.cells_of(adata, read.as_keys(use_rep), columns, color) | {
        "labels": [explorer.labels_of(adata, key, genes.get(key)) for key in labels],
        "clusters": explorer.clusters_of(adata),
        "expression": explorer.expression_of(adata, shown, layers[0]) if genes else None,
        "records": explorer.records(adata),
        "figures": [],
    }
    return Page(content, inputs=files_of(adata, reference))


def _genes(adata: AnnData, reference: Any, key: str, prior_key: str) -> pd.DataFrame | None:
    """Return the genes behind every label, or None if the labels are from another reference."""
    labels_key = read.record(adata, key)["call"].get("labels_key")
    if reference is None or labels_key is None:
        return None
    from dice.tl._label_genes import label_genes  # not at the top: it imports torch

    try:
        # The same warnings were already shown when the cells were labelled.
        with warnings.catch_warnings(action="ignore", category=DiceWarning):
            return label_genes(adata, reference, labels_key, n_genes=N_GENES, key=key, prior_key=prior_key)
    except DiceError:
        # The labels are from another reference, or the expression was removed. The page then has no genes.
        return None
