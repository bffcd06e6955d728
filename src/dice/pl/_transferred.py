"""What plots read of transferred labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dice._errors import SlotError

if TYPE_CHECKING:
    from anndata import AnnData
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Transferred:
    """Labels, probabilities and prediction sets of all cells, as of ``dice.tl.transfer_labels``."""

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
        key = f"{labels_key}_dice" if key is None else key
        absent = [name for name in (f"{key}_prob", f"{key}_set") if name not in adata.obsm]
        if key not in adata.obs or absent or key not in adata.uns:
            raise SlotError(
                f"adata holds no transferred labels {key!r}: run dice.tl.transfer_labels(adata, reference, "
                f"{labels_key!r}) first, or set key to theirs."
            )
        record = adata.uns[key]
        return cls(
            names=[str(name) for name in record["labels"]],
            label=pd.Categorical(adata.obs[key].astype(str)),
            probabilities=np.asarray(adata.obsm[f"{key}_prob"], dtype=np.float64),
            sets=np.asarray(adata.obsm[f"{key}_set"], dtype=bool),
            alpha=float(record["call"]["alpha"]),
        )

    @property
    def best(self) -> NDArray[np.intp]:
        """The most likely label of every cell, also of those that are unassigned."""
        return self.probabilities.argmax(1) if len(self.probabilities) else np.zeros(0, dtype=np.intp)
