"""Plots of the results of the tools. scanpy, umap and torch load with the first plot that needs them."""

from dice.pl._clusters import clusters
from dice.pl._comparison import comparison
from dice.pl._distribution import distribution
from dice.pl._explore import explore
from dice.pl._features import features
from dice.pl._label_genes import label_genes
from dice.pl._label_tree import label_tree
from dice.pl._posterior import posterior
from dice.pl._prior import prior
from dice.pl._reliability import reliability
from dice.pl._report import report
from dice.pl._rho import rho
from dice.pl._spatial import spatial
from dice.pl._transfer import transfer

__all__ = ["clusters", "comparison", "distribution", "explore", "features", "label_genes", "label_tree"]
__all__ += ["posterior", "prior", "reliability", "report", "rho", "spatial", "transfer"]
