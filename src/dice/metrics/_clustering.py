"""Agreement of clusters with labels over many resolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dice import _log
from dice._arguments import seed
from dice._clusters.partition import Method, check_resolutions, communities
from dice._data.graph import neighbor_graph
from dice._errors import InputError
from dice._types import Codes, Seed
from dice.metrics._agreement import ari, nmi, v_measure
from dice.metrics._inputs import as_codes, check_lengths

#: The paper's 39 resolutions: 0.01 to 0.20 by 0.01, then 0.2 to 2.0 by 0.1 (0.2 is in both).
PAPER_RESOLUTIONS: tuple[float, ...] = (*(step / 100 for step in range(1, 21)), *(step / 10 for step in range(2, 21)))


def leiden_sweep(
    embedding: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    resolutions: Sequence[float] = PAPER_RESOLUTIONS,
    n_neighbors: int = 15,
    method: Method = "leiden",
    random_state: Seed = 0,
) -> pd.DataFrame:
    """Cluster at many resolutions on one neighbour graph and compare with labels.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions), or sparse connectivities of shape (cells, cells).
    labels
        Known label of every cell. All cells are clustered; cells without a label are not scored.
    resolutions
        Resolutions to run, by default :data:`PAPER_RESOLUTIONS`.
    n_neighbors
        Size of the neighbourhoods in the graph.
    method
        ``"leiden"``, or ``"louvain"`` as in the paper's own runs.
    random_state
        Seed, used afresh at each resolution.

    Returns
    -------
    One row per resolution with ``resolution`` and ``n_clusters``, and with labels also ``ari``,
    ``nmi``, ``nmi_max`` and ``v_measure``.

    Examples
    --------
    >>> import numpy as np, dice
    >>> cells = np.r_[np.linspace(0, 1, 30), np.linspace(9, 10, 30)][:, None]
    >>> sweep = dice.metrics.leiden_sweep(cells, ["a"] * 30 + ["b"] * 30, resolutions=[0.1])
    >>> float(sweep.ari[0])
    1.0
    """
    check_resolutions(resolutions)
    if method not in ("leiden", "louvain"):
        raise InputError(f"method={method!r} is unknown: use 'leiden' or 'louvain'.")
    random_state = seed(random_state)
    graph = neighbor_graph(embedding, n_neighbors)
    if labels is not None:
        check_lengths(len(as_codes(labels)), "labels", graph.vcount(), "cells in the embedding")
    rows = {}
    with _log.progress(total=len(set(resolutions)), desc=method, unit="resolution") as bar:
        for resolution in dict.fromkeys(resolutions):
            clusters = communities(graph, resolution, method=method, random_state=random_state)
            rows[resolution] = _score(resolution, clusters, labels)
            bar.update()
    return pd.DataFrame([rows[resolution] for resolution in resolutions])


def _score(resolution: float, clusters: Codes, labels: ArrayLike | None) -> dict[str, float]:
    row: dict[str, float] = {"resolution": resolution, "n_clusters": len(np.unique(clusters))}
    if labels is not None:
        row["ari"] = ari(labels, clusters)
        row["nmi"] = nmi(labels, clusters)
        row["nmi_max"] = nmi(labels, clusters, average="max")
        row["v_measure"] = v_measure(labels, clusters)
    return row
