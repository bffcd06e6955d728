"""What plots read of transferred labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dice._errors import SlotError
from dice._keys import LabelKeys

if TYPE_CHECKING:
    from anndata import AnnData
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Transferred:
    """Labels, probabilities and prediction sets of all cells, as of :func:`dice.tl.transfer_labels`."""

    #: Labels that the reference has, in its order.
    names: list[str]
    #: Label of every cell, or ``"unassigned"``.
    label: pd.Categorical
    probabilities: NDArray[np.float64]
    sets: NDArray[np.bool_]
    alpha: float

    @classmethod
    def read(cls, adata: AnnData, labels_key: str, key: str | None) -> Transferred:
        """Read the slots that begin with `key`, by default ``f"{labels_key}_dice"``."""
        keys = LabelKeys(f"{labels_key}_dice" if key is None else key)
        there = keys.label in adata.obs and {keys.probability, keys.set} <= set(adata.obsm) and keys.uns in adata.uns
        if not there:
            raise SlotError(
                f"adata holds no transferred labels {keys.label!r}: run dice.tl.transfer_labels(adata, reference, "
                f"{labels_key!r}) first, or set key to theirs."
            )
        record = adata.uns[keys.uns]
        return cls(
            names=[str(name) for name in record["labels"]],
            label=pd.Categorical(adata.obs[keys.label].astype(str)),
            probabilities=np.asarray(adata.obsm[keys.probability], dtype=np.float64),
            sets=np.asarray(adata.obsm[keys.set], dtype=bool),
            alpha=float(record["call"]["alpha"]),
        )
