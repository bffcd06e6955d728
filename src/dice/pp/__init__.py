"""Preprocessing: from raw counts to the input of the method."""

from dice.pp._clr import clr
from dice.pp._correct_batches import correct_batches
from dice.pp._normalize_panel import normalize_panel
from dice.pp._prepare import prepare
from dice.pp._shared_genes import shared_genes

__all__ = ["clr", "correct_batches", "normalize_panel", "prepare", "shared_genes"]
