"""Tools: learn a prior, denoise a query, transfer labels and features, evaluate the result."""

from dice.tl._annotate import annotate
from dice.tl._cluster import cluster
from dice.tl._cluster_markers import cluster_markers
from dice.tl._credible_region import credible_region
from dice.tl._denoise import denoise
from dice.tl._denoise_to_zarr import denoise_to_zarr
from dice.tl._evaluate import evaluate
from dice.tl._label_genes import label_genes
from dice.tl._neighbors import neighbors
from dice.tl._novelty import novelty
from dice.tl._safe_labels import safe_labels
from dice.tl._train_prior import train_prior
from dice.tl._transfer_features import transfer_features
from dice.tl._transfer_labels import transfer_labels
from dice.tl._tune_rho import tune_rho

__all__ = ["annotate", "cluster", "cluster_markers", "credible_region", "denoise", "denoise_to_zarr", "evaluate"]
__all__ += ["label_genes", "neighbors", "novelty", "safe_labels", "train_prior", "transfer_features", "transfer_labels"]
__all__ += ["tune_rho"]
