"""Blood cells of Hao et al. 2021, and the paper's experiment with them."""

from __future__ import annotations

import os
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
from anndata import AnnData
from fetch import Remote, fetch
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._arguments import known_key, seed
from dice._errors import InputError
from dice._types import Codes, Seed

#: The file of ``scvi.data.pbmc_seurat_v4_cite_seq``, from scverse's example data (1 GB).
FILE = Remote(
    name="pbmc_seurat_v4.h5ad",
    url="https://scverse-exampledata.s3.eu-west-1.amazonaws.com/anndata/pbmc_seurat_v4.h5ad",
    digest="c3b0100a6ce27beb64eff53692e09f98da2a58cfdfea08d15ff204f834b41396",
)
LABELS = "celltype.l2"
PROTEINS = "protein_counts"
#: Names that end in -1 and -2 without being two clones against one protein.
NOT_CLONES = frozenset({"Notch", "TCR"})


def pbmc_citeseq(
    *,
    filtered: bool = True,
    path: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> AnnData:
    """Blood cells of eight donors, raw counts with 30 expert labels: the paper's CITE-seq data.

    The data of Hao et al., Cell 2021 (doi:10.1016/j.cell.2021.04.048) as scvi-tools distributes
    them. The first call downloads 1 GB, with a progress bar, into the cache; a download that breaks
    off is resumed by the next call. Needs several GB of memory.

    Parameters
    ----------
    filtered
        Keep the 152,094 cells that scvi-tools keeps, which the paper used; False keeps all 161,764.
        Removed are doublets, cells with 12 % or more mitochondrial counts, with 150 or fewer
        detected proteins, and with a log sum of protein counts outside of 7.6 to 10.3.
    path
        Read this file instead, for example ``data/pbmc_seurat_v4.h5ad`` left by scvi-tools.
    cache_dir
        Cache folder; by default the environment variable ``DICE_CACHE``, else the platform's.

    Returns
    -------
    Object with

    - ``X`` (152094, 20729) raw counts, CSR float32,
    - ``obs["cell_type"]`` categorical, the labels of level 2, and the file's own columns:
      ``celltype.l1`` to ``celltype.l3``, ``lane``, ``donor``, ``time``, ``orig.ident`` and others,
    - ``obsm["protein_counts"]`` data frame of antibody counts, as in the file.

    """
    file = Path(path) if path is not None else fetch(FILE, cache_dir=cache_dir)
    cells = ad.read_h5ad(file)
    if LABELS not in cells.obs or PROTEINS not in cells.obsm:
        raise InputError(
            f"{str(file)!r} has no obs[{LABELS!r}] or no obsm[{PROTEINS!r}]: pass the path of {FILE.name} as "
            "scvi-tools distributes it, or no path."
        )
    if filtered:
        kept = _scvi_filter(cells)
        _log.info(f"{kept.sum()} of {cells.n_obs} cells pass the filters of scvi-tools.")
        cells = cells[kept].copy()
    cells.X = sparse.csr_matrix(cells.X, dtype=np.float32)
    cells.obs["cell_type"] = pd.Categorical(cells.obs[LABELS]).remove_unused_categories()
    return cells


def paper_citeseq_split(
    adata: AnnData,
    *,
    labels_key: str = "cell_type",
    batch_key: str | None = "lane",
    n_cells: int = 10_000,
    n_query: int = 1_000,
    n_top_genes: int = 3_000,
    random_state: Seed = 0,
) -> tuple[AnnData, AnnData]:
    """The paper's preprocessing of :func:`pbmc_citeseq`: 9,000 reference and 1,000 query cells.

    Cells are drawn with the proportions of the labels preserved, go through
    :func:`dice.pp.prepare`, are cut to the highly variable genes, corrected for batches by
    :func:`dice.pp.correct_batches`, and split, again with proportions preserved. Genes are not
    scaled: :func:`dice.tl.train_prior` does that, with the cap of 10.

    Parameters
    ----------
    adata
        Raw counts of labelled cells.
    labels_key
        Column of ``adata.obs`` whose proportions are preserved.
    batch_key
        Column of ``adata.obs`` with the batches to correct; None for no correction.
    n_cells
        Number of cells drawn; quality control may remove some of them.
    n_query
        Number of query cells among those that remain.
    n_top_genes
        Number of highly variable genes.
    random_state
        Seed.

    Returns
    -------
    Reference and query, each with

    - ``X`` (cells, 3000) dense float32, log-normalised and corrected expression (of the kind of
      `adata` without `batch_key`),
    - ``layers["counts"]``, and what :func:`dice.pp.prepare` writes to ``obs``, ``var`` and ``uns``.

    """
    from dice import pp

    for key in (labels_key, *([] if batch_key is None else [batch_key])):
        known_key(key, adata.obs, "column", "adata.obs")
    random_state = seed(random_state)
    if n_query >= n_cells:
        raise InputError(f"n_query={n_query} of n_cells={n_cells} leaves no reference: choose a smaller n_query.")
    drawing, splitting = np.random.default_rng(random_state).spawn(2)
    cells = adata[_stratified(adata.obs[labels_key], n_cells, drawing)].copy()
    pp.prepare(cells, n_top_genes=n_top_genes)
    cells = cells[:, cells.var["highly_variable"]].copy()
    if batch_key is not None:
        pp.correct_batches(cells, batch_key, random_state=random_state)
        cells.X = cells.layers.pop("harmony")
    chosen = _stratified(cells.obs[labels_key], n_query, splitting)
    query = np.isin(np.arange(cells.n_obs), chosen)
    return cells[~query].copy(), cells[query].copy()


def _scvi_filter(cells: AnnData) -> NDArray[np.bool_]:
    """The cells that scvi-tools keeps by default."""
    proteins = _merge_clones(cells.obsm[PROTEINS])
    size = np.log(np.maximum(proteins.sum(axis=1).to_numpy(dtype=float), 1))
    detected = (proteins > 0).sum(axis=1).to_numpy()
    mitochondrial = cells.var_names.str.startswith("MT-")
    total = np.asarray(cells.X.sum(axis=1)).ravel()
    share = np.asarray(cells.X[:, mitochondrial].sum(axis=1)).ravel() / np.maximum(total, 1)
    single = (cells.obs[LABELS] != "Doublet").to_numpy()
    return (size > 7.6) & (size < 10.3) & (detected > 150) & (share < 0.12) & single


def _merge_clones(proteins: pd.DataFrame) -> pd.DataFrame:
    """Antibodies X-1 and X-2 against the same protein X as one."""
    names = set(proteins.columns)

    def merged(name: str) -> str:
        stem = name.partition("-")[0]
        clones = {f"{stem}-1", f"{stem}-2"}
        return stem if name in clones <= names and stem not in NOT_CLONES else name

    return proteins.T.groupby([merged(name) for name in proteins.columns], sort=False).sum().T


def _stratified(labels: pd.Series, n: int, rng: np.random.Generator) -> Codes:
    """Positions of `n` cells, in order, with the proportions of the labels preserved.

    Every label gets its share rounded down; what is left goes to the largest remainders. Unlike
    scikit-learn's split this takes labels of a single cell. Cells without a label are a label.
    """
    if not 1 <= n <= len(labels):
        raise InputError(f"{n} of {len(labels)} cells cannot be drawn: choose fewer, and 1 or more.")
    codes = pd.Categorical(labels).codes
    found, sizes = np.unique(codes, return_counts=True)
    shares = n * sizes / len(codes)
    take = np.floor(shares).astype(int)
    take[np.argsort(take - shares, kind="stable")[: n - take.sum()]] += 1
    sizes_of = zip(found, take, strict=True)
    return np.sort(np.concatenate([rng.choice(np.flatnonzero(codes == c), n, replace=False) for c, n in sizes_of]))
