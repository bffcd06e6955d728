"""Counts of proteins, checked and normalised."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._arguments import known_key
from dice._data.features import as_numbers
from dice._data.read import feature_table
from dice._data.write import Slots, result_key
from dice._errors import InputError
from dice._features.ratios import centred_log_ratios


def normalised_proteins(adata: AnnData, key: str, across: str, key_added: str | None) -> Slots:
    """Centred log-ratios of ``obsm[key]``, and the record of how they were made."""
    known_key(key, adata.obsm, "array", "adata.obsm")
    added = f"{key}_clr" if key_added is None else key_added
    table, added = feature_table(adata, key), result_key(adata, added, "protein_clr", besides=key)
    counts = as_numbers(table, key, "adata")
    wrong = np.flatnonzero((counts < 0).any(1) | np.isinf(counts).any(1))
    if len(wrong):
        raise InputError(
            f"adata.obsm[{key!r}] is negative or infinite in {len(wrong)} cells, for example "
            f"{list(adata.obs_names[wrong[:3]])}, which counts are not: pass the key of the counts."
        )
    values = centred_log_ratios(counts, axis=1 if across == "features" else 0).astype(np.float32)
    params = {"params": {"key": key, "normalisation": "clr", "across": across}}
    return Slots(obsm={added: pd.DataFrame(values, index=adata.obs_names, columns=table.columns)}, uns={added: params})
