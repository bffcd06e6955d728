"""Technologies that a data set mixes: found by names of columns, and by measuring what they explain."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._data.matrix import Matrix
from dice._model.batch_effect import explained_by_batches
from dice._types import Codes

#: Words in the name of a column that may tell how cells were measured. Columns of other names may hold biology.
WORDS = re.compile(
    r"\b(assay|batch|chemistry|dataset|donor|kit|lane|library|method|modality|plate|platform|project|protocol|run|sample"
    r"|site|source|study|suspension|tech|technology)\b"
)
#: Most batches, and fewest cells of one, within which variable genes are worth ranking.
MOST_BATCHES, FEWEST_CELLS = 20, 50
#: Cells to measure on.
MEASURED_CELLS = 4000
#: Share of the variance from which on batches are said to be technologies. Nuclei and cells, and three chemistries,
#: explain .083 to .174 of it within labels and .045 to .162 without; sites, lanes and donors of one technology at most
#: .037 (four data sets).
TECHNOLOGIES = 0.04


def find_technologies(
    adata: AnnData, *, layer: str | None = None, labels: Codes | None = None, who: str = "adata"
) -> tuple[str, float] | None:
    """The column of ``obs`` that explains most of the expression within labels, and how much; None if little."""
    columns = batch_columns(adata)
    if not columns:
        return None
    cells = np.arange(adata.n_obs)
    if adata.n_obs > MEASURED_CELLS:
        cells = np.sort(np.random.default_rng(0).choice(adata.n_obs, MEASURED_CELLS, replace=False))
    x = Matrix(adata, layer=layer, who=who).take(cells)
    known = None if labels is None else labels[cells]
    shares = {name: explained_by_batches(x, codes[cells], known) for name, codes in columns.items()}
    best = max(shares, key=lambda name: shares[name])
    return (best, shares[best]) if shares[best] >= TECHNOLOGIES else None


def batch_columns(adata: AnnData) -> dict[str, Codes]:
    """Columns of a few batches by their names, as codes; columns that divide the cells alike are one."""
    found: dict[str, Codes] = {}
    for name in adata.obs:
        words, column = re.sub(r"[^a-z]+", " ", str(name).lower()), adata.obs[name]
        if not WORDS.search(words) or pd.api.types.is_float_dtype(column) or column.isna().any():
            continue
        codes = pd.factorize(np.asarray(column).astype(str))[0].astype(np.intp)
        sizes = np.bincount(codes)
        usable = 2 <= len(sizes) <= MOST_BATCHES and sizes.min() >= FEWEST_CELLS
        if usable and not any(np.array_equal(codes, other) for other in found.values()):
            found[str(name)] = codes
    return found
