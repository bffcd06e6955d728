"""Scores of embeddings and of clusterings, on plain arrays.

Scores leave out cells without a label (``None``, ``NaN``, ``pd.NA``); clusterings see all cells.
"""

from __future__ import annotations

from dice.metrics._agreement import ari, label_accuracy, nmi, v_measure
from dice.metrics._clustering import PAPER_RESOLUTIONS, kmeans, leiden, leiden_sweep, louvain
from dice.metrics._embedding import knn_macro_f1, silhouette
from dice.metrics._lisi import clisi, ilisi, lisi_neighbors

__all__ = [
    "PAPER_RESOLUTIONS",
    "ari",
    "clisi",
    "ilisi",
    "kmeans",
    "knn_macro_f1",
    "label_accuracy",
    "leiden",
    "leiden_sweep",
    "lisi_neighbors",
    "louvain",
    "nmi",
    "silhouette",
    "v_measure",
]
