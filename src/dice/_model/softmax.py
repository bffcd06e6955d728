"""Probabilities of logits, without torch."""

from __future__ import annotations

import numpy as np

from dice._types import Floats


def softmax(logits: Floats) -> Floats:
    """Probabilities (..., C) of logits."""
    powers = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(-1, keepdims=True)
