"""What plots read of transferred labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._data import read
from dice._keys import LabelKeys
from dice._labels.doubt import CONFIDENT
from dice._types import Floats, Mask


@dataclass(frozen=True)
class Transferred:
    """Labels, probabilities and prediction sets of all cells, as of :func:`dice.tl.transfer_labels`."""

    #: Labels that the reference has, in its order.
    names: list[str]
    #: Label of every cell, or ``"unassigned"``.
    label: pd.Categorical
    probabilities: Floats
    sets: Mask
    #: Cells whose label is beyond doubt.
    confident: Mask
    alpha: float

    @classmethod
    def of(cls, adata: AnnData, labels_key: str, key: str | None) -> Transferred:
        """Read the slots that begin with `key`, by default ``f"{labels_key}_dice"``."""
        keys = LabelKeys(f"{labels_key}_dice" if key is None else key)
        step = f"dice.tl.transfer_labels(adata, reference, {labels_key!r})"
        record = read.record(adata, keys.uns, what="record of transferred labels", step=step)
        return cls(
            names=[str(name) for name in record["labels"]],
            label=pd.Categorical(read.column(adata, keys.label, step=step).astype(str)),
            probabilities=read.array(adata, keys.probability, step=step).astype(np.float64),
            sets=read.array(adata, keys.set, step=step).astype(bool),
            confident=(read.column(adata, keys.status, step=step).astype(str) == CONFIDENT).to_numpy(),
            alpha=float(record["call"]["alpha"]),
        )
