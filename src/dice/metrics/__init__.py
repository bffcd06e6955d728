"""Scores of embeddings and of clusterings, on plain arrays.

Scores leave out cells without a label (``None``, ``NaN``, ``pd.NA``).
"""

from dice.metrics._clustering import PAPER_RESOLUTIONS, ari, leiden_sweep, nmi, v_measure
from dice.metrics._embedding import clisi, ilisi, knn_macro_f1, lisi_neighbors, silhouette

__all__ = ["PAPER_RESOLUTIONS", "ari", "clisi", "ilisi", "knn_macro_f1", "leiden_sweep", "lisi_neighbors"]
__all__ += ["nmi", "silhouette", "v_measure"]
