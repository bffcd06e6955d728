"""What kind of values a matrix holds: raw counts, or logarithms."""

from __future__ import annotations

import numpy as np

from dice._anndata.preprocessing import LOGGED, is_counts, stored_values
from dice._errors import InputError
from dice._types import Chunk


def is_raw(chunk: Chunk) -> bool:
    """Whether a sample of cells holds raw counts; zeros, ones and twos alone may be either."""
    return bool(stored_values(chunk).max(initial=0) >= 3) and is_counts(chunk)


def is_unlogged(chunk: Chunk) -> bool:
    """Whether a sample of cells holds raw counts, or fractions of them that are too large for logarithms."""
    values = stored_values(chunk)
    return is_raw(chunk) or bool(values.min(initial=0) >= 0 and LOGGED < values.max(initial=0) < np.inf)


def check_expression(chunk: Chunk) -> None:
    """Refuse raw counts, or estimates of them, where log-normalised expression is expected."""
    if is_unlogged(chunk):
        holds = (
            "raw counts" if is_raw(chunk) else f"values up to {stored_values(chunk).max():.4g}, which are no logarithms"
        )
        raise InputError(
            f"The matrix holds {holds}, but log-normalised expression is expected: call sc.pp.normalize_total(adata, "
            "target_sum=1e4) and sc.pp.log1p(adata) first, or pass check=False."
        )
