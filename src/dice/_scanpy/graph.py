"""The neighbour graph of an embedding and its communities."""

from __future__ import annotations

import random
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from dice._arguments import whole_number
from dice._errors import InputError
from dice._threads import openmp_threads_kept
from dice.metrics._inputs import as_embedding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anndata import AnnData
    from igraph import Graph

    from dice.metrics._inputs import Codes, Floats

Method = Literal["leiden", "louvain"]

_igraph_lock = threading.Lock()


def neighbor_graph(cells: Any, n_neighbors: int) -> Graph:
    """Return a weighted graph for igraph: scanpy's of an embedding, or the one that sparse connectivities hold."""
    import igraph

    if sparse.issparse(cells) and cells.shape[0] == cells.shape[1]:
        weights = _as_connectivities(cells)
    else:
        weights = _with_neighbors(as_embedding(cells), n_neighbors).obsp["connectivities"]
    upper = sparse.triu(weights, k=1, format="coo")
    edges = np.column_stack([upper.row, upper.col])
    return igraph.Graph(n=weights.shape[0], edges=edges, edge_attrs={"weight": upper.data})


def _as_connectivities(matrix: sparse.spmatrix) -> sparse.spmatrix:
    """Refuse what is not the connectivities of an undirected graph."""
    if not np.isfinite(matrix.data).all() or (matrix.data < 0).any() or abs(matrix - matrix.T).max() > 1e-6:
        raise InputError("The sparse matrix is no undirected weighted graph: pass connectivities, not distances.")
    return matrix


def umap_layout(values: Floats, n_neighbors: int, random_state: int) -> Floats:
    """Return the two-dimensional UMAP that scanpy draws."""
    import scanpy as sc

    cells = _with_neighbors(values, n_neighbors)
    with openmp_threads_kept():
        sc.tl.umap(cells, random_state=random_state)
    return np.asarray(cells.obsm["X_umap"], dtype=np.float64)


def partition(graph: Graph, resolution: float, method: Method, random_state: int) -> Codes:
    """Return the cluster of every node."""
    with _igraph_seed(random_state):
        if method == "leiden":
            found = graph.community_leiden(
                objective_function="modularity",
                weights="weight",
                resolution=resolution,
                n_iterations=2,
            )
        else:
            found = graph.community_multilevel(weights="weight", resolution=resolution)
    return np.asarray(found.membership, dtype=np.intp)


def _with_neighbors(values: Floats, n_neighbors: int) -> AnnData:
    """Put the embedding into an object of its own and search neighbours exactly, without a seed."""
    import anndata as ad
    import scanpy as sc

    n_cells = len(values)
    n_neighbors = whole_number("n_neighbors", n_neighbors, least=2)
    if n_cells < 2:
        raise InputError("A neighbour graph needs two cells and n_neighbors=2 or more: raise them.")
    cells = ad.AnnData(shape=(n_cells, 0), obsm={"X": values})
    with openmp_threads_kept(), warnings.catch_warnings():
        # Raised where cells coincide; the graph is right.
        warnings.simplefilter("ignore", sparse.SparseEfficiencyWarning)
        sc.pp.neighbors(cells, n_neighbors=min(n_neighbors, n_cells), use_rep="X", transformer="sklearn")
    return cells


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
