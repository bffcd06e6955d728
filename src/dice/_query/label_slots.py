"""What label transfer leaves in an AnnData object."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice._anndata.write import Slots
from dice._keys import LabelKeys
from dice._query.reference import Labelled
from dice._types import Floats

#: Names that files keep for themselves, and the longest one that all of them can hold.
RESERVED, MAX_COLUMN = ("", ".", "..", "_index"), 200
UNASSIGNED, UNASSIGNED_COLOR = "unassigned", "#B8B8B8"


def label_slots(
    keys: LabelKeys,
    adata: AnnData,
    labelled: Labelled,
    probabilities: Floats,
    sets: NDArray[np.bool_],
    certain: NDArray[np.bool_],
    record: dict[str, Any],
) -> Slots:
    """Labels, probabilities and sets; cells that are not certain, or whose set is empty, are unassigned."""
    names = labelled.names
    categories = names if UNASSIGNED in names else [*names, UNASSIGNED]
    best = probabilities.argmax(1) if len(probabilities) else np.zeros(0, dtype=np.intp)
    codes = np.where(certain & sets.any(1), best, categories.index(UNASSIGNED))
    top = np.sort(probabilities, axis=1)[:, ::-1].astype(np.float32)
    columns = _columns(names)
    frame = {"index": adata.obs_names, "columns": columns}
    uns: dict[str, Any] = {keys.uns: record | {"labels": np.array(names, dtype=str)}}
    if labelled.colors is not None:
        uns[keys.colors] = [*labelled.colors, UNASSIGNED_COLOR][: len(categories)]
    return Slots(
        stale=frozenset({keys.colors}),
        obs={
            keys.label: pd.Categorical.from_codes(codes, categories),
            keys.probability: top[:, 0],
            keys.margin: top[:, 0] - top[:, 1],
            keys.set: _in_words(sets, names),
        },
        obsm={
            keys.probability: pd.DataFrame(probabilities.astype(np.float32), **frame),
            keys.set: pd.DataFrame(sets, **frame),
        },
        uns=uns,
    )


def _columns(names: list[str]) -> list[str]:
    """Names of columns, which are names of entries in files: short, without slashes, and still told apart."""
    columns: list[str] = []
    for name in names:
        column = name.replace("/", "_").replace("\\", "_")[:MAX_COLUMN]
        while column in columns or column in RESERVED:
            column += "_"
        columns.append(column)
    return columns


def _in_words(sets: NDArray[np.bool_], names: list[str]) -> pd.Categorical:
    """Sets as text; most cells share a few of them."""
    different, code = np.unique(sets, axis=0, return_inverse=True)
    words = [" | ".join(np.array(names, dtype=object)[row]) for row in different]
    # Two sets may read the same: labels can hold a bar themselves, or nothing at all.
    return pd.Categorical(np.array(words, dtype=object)[code.ravel()], categories=list(dict.fromkeys(words)))
