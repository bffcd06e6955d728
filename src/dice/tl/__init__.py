"""Tools: learn a prior, denoise a query, evaluate the result."""

from __future__ import annotations

from dice.tl._credible_region import credible_region
from dice.tl._denoise import denoise
from dice.tl._evaluate import evaluate
from dice.tl._train_prior import train_prior

__all__ = ["credible_region", "denoise", "evaluate", "train_prior"]
