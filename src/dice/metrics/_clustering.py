"""Clusterings of an embedding: Leiden, Louvain, k-means, and a sweep over resolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from dice import _log
from dice._errors import InputError
from dice._scanpy.graph import Method, neighbor_graph, partition
from dice.metrics._agreement import ari, nmi, v_measure
from dice.metrics._inputs import Codes, as_codes, as_embedding, check_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

#: The paper's 39 resolutions: 0.01 to 0.20 by 0.01, then 0.2 to 2.0 by 0.1 (0.2 is in both).
PAPER_RESOLUTIONS: tuple[float, ...] = (
    *(step / 100 for step in range(1, 21)),
    *(step / 10 for step in range(2, 21)),
)


def leiden(embedding: ArrayLike, *, resolution: float = 1.0, n_neighbors: int = 15, random_state: int = 0) -> Codes:
    """Leiden clusters on scanpy's neighbour graph (igraph, modularity, two iterations).

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions), or sparse connectivities of shape (cells, cells).
    resolution
        Higher values give more clusters.
    n_neighbors
        Size of the neighbourhoods in the graph.
    random_state
        Seed of the algorithm.

    Returns
    -------
    Number of the cluster of every cell, shape (cells,).

    Examples
    --------
    >>> import numpy as np, dice
    >>> cells = np.r_[np.linspace(0, 1, 30), np.linspace(9, 10, 30)][:, None]
    >>> len(set(dice.metrics.leiden(cells, resolution=0.1)))
    2
    """
    _check_resolutions([resolution])
    graph = neighbor_graph(embedding, n_neighbors)
    return partition(graph, resolution, "leiden", random_state)


def louvain(embedding: ArrayLike, *, resolution: float = 1.0, n_neighbors: int = 15, random_state: int = 0) -> Codes:
    """Louvain clusters on scanpy's neighbour graph, as in the paper's own runs.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions), or sparse connectivities of shape (cells, cells).
    resolution
        Higher values give more clusters.
    n_neighbors
        Size of the neighbourhoods in the graph.
    random_state
        Seed of the algorithm.

    Returns
    -------
    Number of the cluster of every cell, shape (cells,).

    Examples
    --------
    >>> import numpy as np, dice
    >>> cells = np.r_[np.linspace(0, 1, 30), np.linspace(9, 10, 30)][:, None]
    >>> len(set(dice.metrics.louvain(cells, resolution=0.1)))
    2
    """
    _check_resolutions([resolution])
    graph = neighbor_graph(embedding, n_neighbors)
    return partition(graph, resolution, "louvain", random_state)


def leiden_sweep(
    embedding: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    resolutions: Sequence[float] = PAPER_RESOLUTIONS,
    n_neighbors: int = 15,
    method: Method = "leiden",
    random_state: int = 0,
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
    _check_resolutions(resolutions)
    if method not in ("leiden", "louvain"):
        raise InputError(f"method={method!r} is unknown: use 'leiden' or 'louvain'.")
    graph = neighbor_graph(embedding, n_neighbors)
    if labels is not None:
        check_lengths(len(as_codes(labels)), "labels", graph.vcount(), "cells in the embedding")
    rows = {}
    with _log.progress(total=len(set(resolutions)), desc=method, unit="resolution") as bar:
        for resolution in dict.fromkeys(resolutions):
            clusters = partition(graph, resolution, method, random_state)
            rows[resolution] = _score(resolution, clusters, labels)
            bar.update()
    return pd.DataFrame([rows[resolution] for resolution in resolutions])


def kmeans(embedding: ArrayLike, n_clusters: int, *, n_init: int = 10, random_state: int = 0) -> Codes:
    """k-means clusters, the best of several starts.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions).
    n_clusters
        Number of clusters.
    n_init
        Number of starts.
    random_state
        Seed of the starts.

    Returns
    -------
    Number of the cluster of every cell, shape (cells,).

    Examples
    --------
    >>> import dice
    >>> len(set(dice.metrics.kmeans([[0.0], [0.1], [5.0], [5.1]], 2)))
    2
    """
    values = as_embedding(embedding)
    if not 1 <= n_clusters <= len(values):
        raise InputError(
            f"n_clusters={n_clusters} is impossible for {len(values)} cells: use a number from 1 to {len(values)}."
        )
    model = KMeans(n_clusters, n_init=n_init, random_state=random_state)
    return np.asarray(model.fit_predict(values), dtype=np.intp)


def _score(resolution: float, clusters: Codes, labels: ArrayLike | None) -> dict[str, float]:
    row: dict[str, float] = {"resolution": resolution, "n_clusters": len(np.unique(clusters))}
    if labels is not None:
        row["ari"] = ari(labels, clusters)
        row["nmi"] = nmi(labels, clusters)
        row["nmi_max"] = nmi(labels, clusters, average="max")
        row["v_measure"] = v_measure(labels, clusters)
    return row


def _check_resolutions(resolutions: Sequence[float]) -> None:
    try:
        values = np.asarray(resolutions, dtype=float)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 1 or values.size == 0 or not (np.isfinite(values) & (values > 0)).all():
        raise InputError("Resolutions must be positive numbers: pass for example 1.0, or several.")
