"""Fetal neocortex of Nowakowski 2017 and Polioudakis 2019, and the paper's experiment with them."""

from __future__ import annotations

import os
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from fetch import Remote, fetch
from scipy import sparse

from dice import _log
from dice._errors import FileError, SlotError
from dice._files import atomic
from dice.datasets._real import cache_folder

#: The reference at the UCSC Cell Browser: transcripts per million of 4,261 cells, and what is known of them. The
#: browser's own list of files (dataset.json) has the first ten digits of their MD5, and no other checksum.
MATRIX = Remote(
    name="neocortex_nowakowski2017_exprMatrix.tsv.gz",
    url="https://cells.ucsc.edu/cortex-dev/exprMatrix.tsv.gz",
    digest="645fd8e136",
    algorithm="md5",
)
META = Remote(
    name="neocortex_nowakowski2017_meta.tsv",
    url="https://cells.ucsc.edu/cortex-dev/meta.tsv",
    digest="6e5a8aab3b",
    algorithm="md5",
)
#: Transcripts per million go up to a million; no logarithm of them is larger, to whatever base from 2.
LARGEST_LOGARITHM = 20.0
#: Genes that are read at once: all of them as one dense matrix would be 2 GB.
GENES_AT_ONCE = 2_000
PORTAL = "https://nemoanalytics.org"
REFERENCE_FILE = "neocortex_nowakowski2017.h5ad"
QUERY = "neocortex_polioudakis2019.h5ad"
#: Where the cell types may be: gEAR's usual name, and that of the authors' table.
LABEL_COLUMNS = ("cell_type", "WGCNAcluster")
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
    Polioudakis et al., Neuron 2019 (doi:10.1016/j.neuron.2019.06.011). The first call downloads the reference (80 MB)
    from the UCSC Cell Browser, and makes a file of those of its cells that have a cell type. The query has no lasting
    link, neither in the authors' viewer nor in NeMO Analytics, the gEAR portal for the brain: it must be downloaded by
    hand once, and where it is missing, the error says how. The paper took both from the portal, whose reference may
    hold other cells and other units.

    Parameters
    ----------
    reference
        Path of the reference, for example that of the portal; by default ``neocortex_nowakowski2017.h5ad`` in the
        cache folder, which is made where it is missing.
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

    - ``X`` (cells, genes) normalised and logged, CSR float32; as in the file, and for the downloaded reference
      log(1 + transcripts per 10,000),
    - ``var_names`` gene symbols, from gEAR's column ``gene_symbol`` where there is one; what was
      the index is then in ``var["ensembl_id"]``,
    - ``obs`` as in the file, and in the reference ``obs["cell_type"]``, categorical.

    The paper has 3,495 and 15,126 cells, and 17,638 genes in common.

    """
    given = ((reference, REFERENCE_FILE), (query, QUERY))
    paths = [Path(path or cache_folder(cache_dir) / name).expanduser() for path, name in given]
    if not paths[1].is_file():
        raise FileError(
            f"The query must be downloaded by hand, as {PORTAL} has no lasting link to it: open its Dataset Explorer, "
            "search for 'Polioudakis 2019', press the download button (h5ad), and save the file as "
            f"{paths[1]} (missing), or pass its path as query=."
        )
    if reference is None and not paths[0].is_file():
        _make_reference(paths[0], cache_dir)
    if not paths[0].is_file():
        raise FileError(f"There is no file {paths[0]}: pass another reference=, or None to download it.")
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

    """
    from dice.pp import shared_genes

    genes = shared_genes(reference, query, n_top_genes=n_top_genes)
    return reference[:, genes].copy(), query[:, genes].copy()


def _make_reference(path: Path, cache_dir: str | os.PathLike[str] | None) -> None:
    """Download the reference, and write it as a file of its own."""
    matrix, meta = (fetch(remote, cache_dir=cache_dir) for remote in (MATRIX, META))
    cells = _browser_cells(matrix, meta)
    with atomic(path) as draft:
        cells.write_h5ad(draft)


def _browser_cells(matrix: Path, meta: Path) -> AnnData:
    """Labelled cells in the layout of the UCSC Cell Browser: genes in rows, cells in columns, named in `meta`."""
    blocks, genes = [], []
    for block in pd.read_csv(matrix, sep="\t", index_col=0, chunksize=GENES_AT_ONCE):
        blocks.append(sparse.csr_matrix(block.to_numpy(np.float32).T))
        genes += [str(name).rpartition("|")[2] for name in block.index]  # some files have "id|symbol"
        names = block.columns.astype(str)
    # As text: columns of numbers and words together could not be written to a file.
    obs = pd.read_csv(meta, sep="\t", index_col=0, dtype=str)
    cells = AnnData(sparse.hstack(blocks, format="csr"), obs=obs.reindex(names), var=pd.DataFrame(index=genes))
    cells.var_names_make_unique()
    if cells.X.max() > LARGEST_LOGARITHM:
        sc.pp.normalize_total(cells, target_sum=1e4)
        sc.pp.log1p(cells)
    return cells[cells.obs[LABEL_COLUMNS[1]].notna()].copy()


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
    wanted = LABEL_COLUMNS if labels_key is None else (labels_key,)
    found = [name for name in wanted if name in reference.obs]
    if not found:
        raise SlotError(
            f"The reference has no column {' or '.join(map(repr, wanted))} in obs: name the one with the cell types as "
            f"labels_key= (available: {list(reference.obs.columns)[:20]})."
        )
    return pd.Categorical(reference.obs[found[0]])
