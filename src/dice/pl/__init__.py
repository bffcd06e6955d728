"""Plots: see what denoising did. matplotlib, umap, scanpy and torch load with the first plot that needs them."""

from __future__ import annotations

from dice.pl._clusters import clusters
from dice.pl._comparison import comparison
from dice.pl._evaluation import evaluation
from dice.pl._explore import explore
from dice.pl._features import features
from dice.pl._label_genes import label_genes
from dice.pl._label_tree import label_tree
from dice.pl._novelty import novelty
from dice.pl._posterior import posterior
from dice.pl._reliability import reliability
from dice.pl._report import report
from dice.pl._rho import rho
from dice.pl._scree import scree
from dice.pl._spatial import spatial
from dice.pl._training import training
from dice.pl._transfer import transfer
from dice.pl._uncertainty import uncertainty

__all__ = [
    "clusters",
    "comparison",
    "evaluation",
    "explore",
    "features",
    "label_genes",
    "label_tree",
    "novelty",
    "posterior",
    "reliability",
    "report",
    "rho",
    "scree",
    "spatial",
    "training",
    "transfer",
    "uncertainty",
]


def __dir__() -> list[str]:
    return __all__
