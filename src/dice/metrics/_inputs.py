"""Input checks shared by all metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dice._arguments import as_embedding
from dice._errors import InputError
from dice._types import Codes, Floats


def as_codes(labels: Any, what: str = "labels") -> Codes:
    """Return integers numbering the labels by first appearance; missing labels are -1."""
    # An object array first: a Categorical's own codes would number categories that no cell has.
    values = np.asarray(labels, dtype=object)
    if values.ndim != 1:
        raise InputError(
            f"The {what} must be one-dimensional, not of shape {values.shape}: pass one entry per cell, for example "
            "adata.obs['cell_type']."
        )
    return np.asarray(pd.factorize(values)[0], dtype=np.intp)


def labelled_cells(embedding: Any, labels: Any, *, what: str = "labels", min_labels: int = 1) -> tuple[Floats, Codes]:
    """Return embedding and label codes of the cells that have a label."""
    values, codes = as_embedding(embedding), as_codes(labels, what)
    check_lengths(len(codes), what, len(values), "cells in the embedding")
    known = codes >= 0
    found = len(np.unique(codes[known]))
    if found < min_labels:
        raise InputError(
            f"The {what} have {found} different values, but this score needs at least {min_labels}: choose {what} that "
            "tell cells apart."
        )
    return values[known], codes[known]


def paired_codes(labels: Any, others: Any, what: str) -> tuple[Codes, Codes]:
    """Return the codes of two partitions over the cells that have both."""
    first, second = as_codes(labels), as_codes(others, what)
    check_lengths(len(first), "labels", len(second), what)
    known = (first >= 0) & (second >= 0)
    if not known.any():
        raise InputError(f"No cell has both a label and one of the {what}: check for missing values.")
    return first[known], second[known]


def check_lengths(n_first: int, first: str, n_second: int, second: str) -> None:
    """Raise if two inputs do not hold one entry per cell."""
    if n_first != n_second:
        raise InputError(f"There are {n_first} {first} but {n_second} {second}: pass one entry per cell.")
