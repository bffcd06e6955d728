"""Scores of embeddings and of clusterings, on plain arrays.

Scores leave out cells without a label (``None``, ``NaN``, ``pd.NA``).
"""

from __future__ import annotations

from dice.metrics._agreement import ari, label_accuracy, nmi, v_measure
from dice.metrics._clustering import PAPER_RESOLUTIONS, leiden_sweep
from dice.metrics._embedding import knn_macro_f1, silhouette
from dice.metrics._lisi import clisi, ilisi, lisi_neighbors

__all__ = [
    "PAPER_RESOLUTIONS",
    "ari",
    "clisi",
    "ilisi",
    "knn_macro_f1",
    "label_accuracy",
    "leiden_sweep",
    "lisi_neighbors",
    "nmi",
    "silhouette",
    "v_measure",
]
