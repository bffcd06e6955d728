"""What preprocessing asks of its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from dice._arguments import known_key
from dice._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from anndata import AnnData

    from dice._core.standardize import Chunk


def is_counts(chunks: Iterable[Chunk]) -> bool:
    """Whether all values are whole numbers and none is negative."""
    parts = (chunk.data if sparse.issparse(chunk) else chunk for chunk in chunks)
    return all(not np.any(values < 0) and not np.any(values % 1) for values in parts)


def read_batches(adata: AnnData, batch_key: str) -> pd.Series:
    """Batch of every cell."""
    known_key(batch_key, adata.obs, "column", "adata.obs")
    batches = adata.obs[batch_key]
    missing = int(batches.isna().sum())
    if missing:
        raise InputError(
            f"adata.obs[{batch_key!r}] names no batch for {missing} cells: fill it in, or remove "
            f"them with adata[adata.obs[{batch_key!r}].notna()].copy()."
        )
    return batches
