"""What plots read of predicted features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._arguments import known_key, said
from dice._data import read
from dice._data.features import as_numbers, find_table
from dice._data.write import column_names
from dice._errors import InputError
from dice._keys import FeatureKeys
from dice._types import Codes, Floats, Mask


@dataclass(frozen=True)
class PredictedTable:
    """Features as of :func:`dice.tl.transfer_features`, and what was measured of them, where that is known."""

    names: list[str]
    mean: Floats
    low: Floats
    high: Floats
    #: Correlation (F,) in held-out cells of the reference, and features that must not be read.
    correlation: Floats
    useless: Mask
    alpha: float
    #: Measured values (n, F), NaN where there are none.
    truth: Floats | None

    @classmethod
    def of(cls, adata: AnnData, key: str, truth_key: str | Sequence[str] | None) -> PredictedTable:
        """Read the slots that begin with `key`; without a `truth_key`, measured values are not looked for."""
        keys, step = FeatureKeys(key), f"dice.tl.transfer_features(adata, reference, {key.removesuffix('_dice')!r})"
        record = read.record(adata, keys.uns, what="record of predicted features", step=step)
        table = record["features"]
        names = [str(name) for name in table["name"]]
        mean, low, high = (
            read.array(adata, name, step=step).astype(np.float64) for name in (keys.mean, keys.low, keys.high)
        )
        truth = None if truth_key is None else _measured(adata, truth_key, names)
        correlation, useless = np.asarray(table["correlation"], dtype=float), np.asarray(table["useless"], dtype=bool)
        return cls(names, mean, low, high, correlation, useless, float(record["call"]["alpha"]), truth)

    @property
    def ranked(self) -> Codes:
        """Features in the order of their correlation, the best first; those without one last."""
        return np.argsort(-np.nan_to_num(self.correlation, nan=-2.0), kind="stable")

    def chosen(self, features: Sequence[str] | None, n: int) -> list[int]:
        """Positions of the features that the caller names, or of the best ones."""
        if features is None:
            return [int(i) for i in self.ranked[:n]]
        wanted = [features] if isinstance(features, str) else list(features)
        return [self.names.index(known_key(name, self.names, "feature", "the predicted ones")) for name in wanted]


def _measured(adata: AnnData, truth_key: str | Sequence[str], names: list[str]) -> Floats:
    """Measured values (n, F) of the predicted features, by name, wherever a reference might keep them."""
    table = find_table(adata, adata, truth_key, "adata")
    table = table.set_axis(column_names([str(name) for name in table.columns]), axis=1)
    found = [name for name in names if name in table.columns]
    if not found:
        raise InputError(
            f"truth_key={said(truth_key)} has none of the predicted features {names[:3]}, but "
            f"{list(table.columns[:3])}: set truth_key to what was measured of these."
        )
    return pd.DataFrame(as_numbers(table[found], truth_key, "adata"), columns=found).reindex(columns=names).to_numpy()
