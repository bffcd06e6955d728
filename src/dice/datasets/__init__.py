"""Data to try the method on: the paper's synthetic pairs and real cells."""

from dice.datasets._real import pancreas, pbmc68k
from dice.datasets._synthetic import mismatch, synthetic

__all__ = ["mismatch", "pancreas", "pbmc68k", "synthetic"]
