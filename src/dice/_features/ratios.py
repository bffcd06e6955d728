"""Centred log-ratios of counts."""

from __future__ import annotations

import numpy as np

from dice._types import Floats


def centred_log_ratios(counts: Floats, *, axis: int) -> Floats:
    """Return log1p(count / m), where log m is the mean of log1p(count) along an axis. NaN are ignored and kept."""
    logs = np.log1p(counts)
    known = ~np.isnan(logs)
    mean = np.where(known, logs, 0).sum(axis, keepdims=True) / np.maximum(known.sum(axis, keepdims=True), 1)
    return np.log1p(counts / np.exp(mean))
