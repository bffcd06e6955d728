"""Fetal neocortex of Nowakowski 2017 and Polioudakis 2019, and the paper's experiment with them."""

from __future__ import annotations

import os
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

from dice import _log
from dice._errors import SlotError
from dice.datasets._download import DownloadError, cache_folder

PORTAL = "https://nemoanalytics.org"
REFERENCE = "neocortex_nowakowski2017.h5ad"
QUERY = "neocortex_polioudakis2019.h5ad"
#: Where the cell types may be: gEAR's usual name, and that of the authors' table.
LABELS = ("cell_type", "WGCNAcluster")
#: Cells that the paper used.
N_REFERENCE, N_QUERY = 3_495, 15_126


def neocortex(
    *,
    reference: str | os.PathLike[str] | None = None,
    query: str | os.PathLike[str] | None = None,
    labels_key: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> tuple[AnnData, AnnData]:
    """Fetal human neocortex from two studies, log-normalised: the paper's reference and query.

    The reference is Nowakowski et al., Science 2017 (doi:10.1126/science.aap8809), the query
    Polioudakis et al., Neuron 2019 (doi:10.1016/j.neuron.2019.06.011), as curated in NeMO
    Analytics, the gEAR portal for the brain. The portal has no lasting link to them, so that the
    two files must be downloaded by hand once; where they are missing, the error says how.

    Parameters
    ----------
    reference
        Path of the reference; by default ``neocortex_nowakowski2017.h5ad`` in the cache folder.
    query
        Path of the query; by default ``neocortex_polioudakis2019.h5ad`` in the cache folder.
    labels_key
        Column of ``obs`` of the reference with the cell types; None looks for ``cell_type`` and
        ``WGCNAcluster``.
    cache_dir
        Cache folder; by default the environment variable ``DICE_CACHE``, else the platform's.

    Returns
    -------
    Reference and query, each with

    - ``X`` (cells, genes) as in the file, normalised and logged, CSR float32,
    - ``var_names`` gene symbols, from gEAR's column ``gene_symbol`` where there is one; what was
      the index is then in ``var["ensembl_id"]``,
    - ``obs`` as in the file, and in the reference ``obs["cell_type"]``, categorical.

    The paper has 3,495 and 15,126 cells, and 17,638 genes in common.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.neocortex()  # doctest: +SKIP
    """
    given = ((reference, REFERENCE), (query, QUERY))
    paths = [Path(path or cache_folder(cache_dir) / name).expanduser() for path, name in given]
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise DownloadError(
            f"The neocortex data must be downloaded by hand, as {PORTAL} has no lasting link to them: open its Dataset "
            "Explorer, search for 'Nowakowski 2017' and 'Polioudakis 2019', press the download button (h5ad) of each, "
            f"and save the two files as {paths[0]} and {paths[1]} (missing: {', '.join(missing)}), or pass their paths "
            "as reference= and query=."
        )
    cells, other = (_read(path) for path in paths)
    cells.obs["cell_type"] = _cell_types(cells, labels_key)
    for part, expected in ((cells, N_REFERENCE), (other, N_QUERY)):
        if part.n_obs != expected:
            _log.info(f"The paper used {expected} of these cells; the file holds {part.n_obs}.")
    return cells, other


def paper_neocortex_pair(reference: AnnData, query: AnnData, *, n_top_genes: int = 5_000) -> tuple[AnnData, AnnData]:
    """The paper's preprocessing of :func:`neocortex`: both cut to their shared variable genes.

    Of the genes that both data sets have, the most variable ones of each, and of these the
    intersection (:func:`dice.pp.shared_genes`); the paper arrives at 785 genes.

    Parameters
    ----------
    reference
        Log-normalised reference.
    query
        Log-normalised query.
    n_top_genes
        Number of highly variable genes of each.

    Returns
    -------
    New objects with the chosen genes, in the order of the reference.

    Examples
    --------
    >>> import dice
    >>> cells = dice.datasets.pbmc68k()
    >>> reference, query = dice.datasets.paper_neocortex_pair(cells[:350], cells[350:, ::-1], n_top_genes=200)
    >>> bool((reference.var_names == query.var_names).all())
    True
    """
    from dice.pp import shared_genes

    genes = shared_genes(reference, query, n_top_genes=n_top_genes)
    return reference[:, genes].copy(), query[:, genes].copy()


def _read(path: Path) -> AnnData:
    """A file in gEAR's layout: Ensembl ids as index of ``var``, symbols beside them."""
    cells = ad.read_h5ad(path)
    if "gene_symbol" in cells.var:
        symbols = cells.var["gene_symbol"].astype(object)
        cells.var["ensembl_id"] = cells.var_names.to_numpy()
        cells.var_names = pd.Index(symbols.where(symbols.notna(), cells.var_names), dtype=object)
    cells.var_names_make_unique()
    cells.X = sparse.csr_matrix(cells.X, dtype=np.float32)
    return cells


def _cell_types(reference: AnnData, labels_key: str | None) -> pd.Categorical:
    wanted = LABELS if labels_key is None else (labels_key,)
    found = [name for name in wanted if name in reference.obs]
    if not found:
        raise SlotError(
            f"The reference has no column {' or '.join(map(repr, wanted))} in obs: name the one with the cell types as "
            f"labels_key= (available: {list(reference.obs.columns)[:20]})."
        )
    return pd.Categorical(reference.obs[found[0]])
