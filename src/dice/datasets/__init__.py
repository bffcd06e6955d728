"""Data to try the method on: the paper's synthetic pairs and real cells."""

from __future__ import annotations

from dice.datasets._bundled import pbmc68k
from dice.datasets._neocortex import neocortex, paper_neocortex_pair
from dice.datasets._pancreas import pancreas
from dice.datasets._pbmc_citeseq import paper_citeseq_split, pbmc_citeseq
from dice.datasets._synthetic import mismatch, synthetic

__all__ = [
    "mismatch",
    "neocortex",
    "pancreas",
    "paper_citeseq_split",
    "paper_neocortex_pair",
    "pbmc68k",
    "pbmc_citeseq",
    "synthetic",
]


def __dir__() -> list[str]:
    return __all__
