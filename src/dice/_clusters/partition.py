"""Clusters of cells: communities of a neighbour graph, and k-means."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from dice._arguments import short_seed
from dice._errors import InputError
from dice._types import Codes, Floats

if TYPE_CHECKING:
    from igraph import Graph

PartitionMethod = Literal["leiden", "louvain"]

_igraph_lock = threading.Lock()


def as_graph(connectivities: Any) -> Graph:
    """A sparse matrix (n, n) of connectivities as an undirected weighted graph."""
    import igraph

    upper = sparse.triu(connectivities, k=1, format="coo")
    edges = np.column_stack([upper.row, upper.col])
    return igraph.Graph(n=connectivities.shape[0], edges=edges, edge_attrs={"weight": upper.data})


def communities(
    graph: Graph, resolution: float, *, method: PartitionMethod = "leiden", random_state: int = 0, n_iterations: int = 2
) -> Codes:
    """The cluster of every node, by modularity; two iterations of Leiden, as scanpy advises, or -1 until it rests."""
    with _igraph_seed(random_state):
        if method == "leiden":
            found = graph.community_leiden(
                objective_function="modularity", weights="weight", resolution=resolution, n_iterations=n_iterations
            )
        else:
            found = graph.community_multilevel(weights="weight", resolution=resolution)
    return np.asarray(found.membership, dtype=np.intp)


def check_resolutions(resolutions: Sequence[float]) -> None:
    try:
        values = np.asarray(resolutions, dtype=float)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 1 or values.size == 0 or not (np.isfinite(values) & (values > 0)).all():
        raise InputError("Resolutions must be positive numbers: pass for example 1.0, or several.")


def kmeans(values: Floats, n_clusters: int, *, random_state: int = 0) -> Codes:
    """The k-means cluster of every row of `values` (n, k), the best of ten starts."""
    from sklearn.cluster import KMeans

    if not 1 <= n_clusters <= len(values):
        raise InputError(
            f"n_clusters={n_clusters} is impossible for {len(values)} cells: use a number from 1 to {len(values)}."
        )
    model = KMeans(n_clusters, n_init=10, random_state=short_seed(random_state))
    return np.asarray(model.fit_predict(values), dtype=np.intp)


@contextmanager
def _igraph_seed(random_state: int) -> Iterator[None]:
    """Give igraph a generator of its own; it has one for the process, hence the lock."""
    import igraph

    with _igraph_lock:
        igraph.set_random_number_generator(random.Random(random_state))  # noqa: S311 - no secret
        try:
            yield
        finally:
            igraph.set_random_number_generator(random)
