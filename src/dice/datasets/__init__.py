"""Data to try the method on: the paper's synthetic pairs and real cells."""

from __future__ import annotations

from dice.datasets._bundled import pbmc68k
from dice.datasets._synthetic import mismatch, synthetic

__all__ = ["mismatch", "pbmc68k", "synthetic"]
