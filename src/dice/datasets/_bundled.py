"""Real cells that come with scanpy: no download."""

from __future__ import annotations

import scanpy as sc
from anndata import AnnData
from scipy import sparse


def pbmc68k() -> AnnData:
    """700 blood cells of ten types, log-normalised, ready for :func:`dice.tl.train_prior`.

    A fresh object from scanpy's ``pbmc68k_reduced``: expression from its ``.raw`` (its ``X`` is
    scaled), without the results of analyses that the file carries.

    Returns
    -------
    Object with

    - ``X`` (700, 765) log1p of normalised counts, CSR float32,
    - ``obs["cell_type"]`` categorical with ten types, ``obs["n_counts"]``, ``obs["n_genes"]`` and
      ``obs["percent_mito"]`` of the cells before genes were selected.

    Examples
    --------
    >>> import dice
    >>> cells = dice.datasets.pbmc68k()
    >>> cells.shape, cells.obs["cell_type"].nunique()
    ((700, 765), 10)
    """
    stored = sc.datasets.pbmc68k_reduced()
    obs = stored.obs[["bulk_labels", "n_counts", "n_genes", "percent_mito"]].copy()
    obs = obs.rename(columns={"bulk_labels": "cell_type"}).rename_axis(None)
    var = stored.raw.var[[]].rename_axis(None)
    return AnnData(X=sparse.csr_matrix(stored.raw.X, dtype="float32"), obs=obs, var=var)
