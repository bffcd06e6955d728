"""Checks shared by all metrics: arrays in, clean arrays or one clear sentence out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from dice._errors import InputError

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]


def as_embedding(embedding: Any) -> Floats:
    """Return a finite (cells, dimensions) float64 array."""
    if sparse.issparse(embedding):
        embedding = embedding.toarray()
    try:
        values = np.asarray(embedding, dtype=np.float64)
    except (TypeError, ValueError) as error:
        kind = type(embedding).__name__
        raise InputError(
            f"The embedding must be a numeric array, not {kind}: pass for example adata.obsm['X_dice']."
        ) from error
    if values.ndim != 2 or values.shape[1] == 0:
        raise InputError(
            f"The embedding must have the shape (cells, dimensions), not {values.shape}: "
            "pass a 2-D array, for posterior samples their mean over axis 1."
        )
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if broken.size:
        raise InputError(
            f"The embedding is NaN or infinite in {broken.size} of {len(values)} cells "
            f"(the first is row {broken[0]}): remove these cells."
        )
    return values


def as_codes(labels: Any, what: str = "labels") -> Codes:
    """Return integers numbering the labels by first appearance; missing labels are -1."""
    # An object array first: a Categorical's own codes would number categories that no cell has.
    values = np.asarray(labels, dtype=object)
    if values.ndim != 1:
        raise InputError(
            f"The {what} must be one-dimensional, not of shape {values.shape}: "
            "pass one entry per cell, for example adata.obs['cell_type']."
        )
    return np.asarray(pd.factorize(values)[0], dtype=np.intp)


def labelled_cells(embedding: Any, labels: Any, *, what: str = "labels", min_labels: int = 1) -> tuple[Floats, Codes]:
    """Return embedding and label codes of the cells that have a label."""
    values, codes = as_embedding(embedding), as_codes(labels, what)
    check_lengths(len(codes), what, len(values), "cells in the embedding")
    known = codes >= 0
    codes = codes[known]
    _check_count(codes, what, min_labels)
    return values[known], codes


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


def _check_count(codes: Codes, what: str, min_labels: int) -> None:
    found = len(np.unique(codes))
    if found < min_labels:
        raise InputError(
            f"The {what} have {found} different values, but this score needs at least "
            f"{min_labels}: choose {what} that tell cells apart."
        )
