"""Pairs of a reference with proteins and a query whose proteins are only there to be compared with."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
from data import pair
from shifts import pair_of

#: Random splits of one data set, and another site or batch.
PAIRS = ("bmmc", "Liu", "bmmc 1-3 -> 4", "Liu 1 -> 3")
RANDOM = PAIRS[:2]


def proteins(name: str, seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    """Reference and query of a pair, with normalised proteins of both in ``obsm["protein_clr"]``.

    Splits are those of data.py, other sites and batches those of shifts.py; the seed draws the cells of each.
    """
    reference, query = pair(name, seed) if name in RANDOM else pair_of(name, seed)
    for adata in (reference, query):
        counts = np.asarray(adata.obsm["protein"], dtype=np.float64)
        columns = adata.uns.get("protein_names", [f"protein {i}" for i in range(counts.shape[1])])
        adata.obsm["protein_clr"] = pd.DataFrame(clr(counts), adata.obs_names, [str(name) for name in columns])
    return reference, query


def clr(counts: np.ndarray) -> np.ndarray:
    """Centred log-ratios within every cell, as dice.pp.clr has them: peers run where dice is not installed."""
    return np.log1p(counts / np.exp(np.log1p(counts).mean(1, keepdims=True)))


def correlations(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Pearson's correlation (F,) of every protein over cells; NaN where one of both does not vary."""
    a, b = found - found.mean(0), truth - truth.mean(0)
    size = np.sqrt((a**2).sum(0) * (b**2).sum(0))
    return np.where(size > 0, (a * b).sum(0) / np.where(size > 0, size, 1), np.nan)
