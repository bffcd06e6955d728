"""Normalisation of proteins."""

from typing import Literal

from anndata import AnnData

from dice._arguments import choice
from dice._data.features import normalised_proteins
from dice._data.write import check_writable, write


def clr(
    adata: AnnData,
    features_key: str = "protein",
    *,
    across: Literal["features", "cells"] = "features",
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Compute centred log-ratios of protein counts: log1p(count / m), where m is the geometric mean of count + 1.

    Seurat and muon use the same formula. By default, they take the mean of every protein across cells (Seurat's
    ``margin=1``, muon's ``axis=0``), which is ``across="cells"`` here. The default here is the mean of every cell
    across its proteins (``margin=2``, ``axis=1``). This default removes the overall staining of a cell and does not
    depend on other cells, so that a reference and a query can be compared.

    Parameters
    ----------
    adata
        Cells with counts of proteins in ``obsm``.
    features_key
        Key of ``obsm``: an array or a DataFrame. NaN means not measured, and stays NaN.
    across
        Whether to take geometric means over the ``"features"`` of a cell or over all ``"cells"`` of a feature.
    key_added
        Key of the result, by default ``"<key>_clr"``.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obsm["protein_clr"]`` DataFrame (n_obs, n_proteins) float32
        Normalised proteins. Columns of an array are named by ``adata.uns["protein_names"]``, or else numbered.
    ``adata.uns["protein_clr"]``
        ``params``: the key of the counts, and `across`.

    Examples
    --------
    >>> import anndata as ad
    >>> import numpy as np
    >>> import dice
    >>> cells = ad.AnnData(np.zeros((2, 1)), obsm={"protein": np.array([[0.0, 3.0], [7.0, 7.0]])})
    >>> dice.pp.clr(cells)
    >>> cells.obsm["protein_clr"].to_numpy(float).round(3).tolist()
    [[0.0, 0.916], [0.629, 0.629]]
    """
    check_writable(adata, copy=copy)
    across = choice("across", across, ("features", "cells"))
    return write(adata, normalised_proteins(adata, features_key, across, key_added), copy=copy)
