"""Nearest neighbours of cells, and communities of a neighbour graph."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._arguments import short_seed
from dice._types import Codes, Floats

if TYPE_CHECKING:
    from igraph import Graph

PartitionMethod = Literal["leiden", "louvain"]
Flavor = Literal["igraph", "leidenalg"]

_igraph_lock = threading.Lock()
#: Maximum number of cells for an exact search. The approximate search has to be compiled first, which takes 9 s.
EXACT_CELLS = 20_000
#: Smallest weight of an edge, as in Seurat: cells that share hardly any neighbour are not connected.
LEAST_SHARED = 1 / 15


def nearest(cells: Floats, n_neighbors: int, random_state: int = 0) -> tuple[Codes, Floats]:
    """Return neighbours (n, n_neighbors) of cells (n, k), and distances. The first neighbour is the cell itself."""
    cells = np.ascontiguousarray(cells, dtype=np.float32)
    if len(cells) <= EXACT_CELLS:
        from sklearn.neighbors import NearestNeighbors

        distances, found = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(cells).kneighbors(cells)
    else:
        from pynndescent import NNDescent

        found, distances = NNDescent(
            cells, n_neighbors=n_neighbors, random_state=short_seed(random_state)
        ).neighbor_graph
    return np.asarray(found, dtype=np.intp), np.asarray(distances, dtype=np.float64)


def shared_neighbors(found: NDArray[np.intp]) -> sparse.csr_matrix:
    """Return the Jaccard index (n, n) of the neighbourhoods of any two cells. Small values are dropped."""
    n, k = found.shape
    member = sparse.csr_matrix((np.ones(n * k, np.float32), found.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    shared = sparse.csr_matrix(member @ member.T)
    shared.data = shared.data / (2 * k - shared.data)
    shared.data[shared.data < LEAST_SHARED] = 0
    shared.setdiag(0)
    shared.eliminate_zeros()
    return shared


def distance_matrix(found: NDArray[np.intp], distances: Floats) -> sparse.csr_matrix:
    """Return the distances (n, n) of every cell to its other neighbours, as scanpy stores them."""
    n, k = found.shape
    other = (found != np.arange(n)[:, None]).ravel()
    rows = np.repeat(np.arange(n), k)[other]
    # Identical cells also have an edge. Their distance must not be zero, because sparse matrices drop zeros.
    values = np.maximum(distances.ravel()[other], np.finfo(np.float64).tiny)
    return sparse.csr_matrix((values, (rows, found.ravel()[other])), shape=(n, n))


def as_graph(connectivities: Any) -> "Graph":
    """Return connectivities (n, n) as an undirected weighted graph."""
    import igraph

    upper = sparse.triu(connectivities, k=1, format="coo")
    edges = np.column_stack([upper.row, upper.col])
    return igraph.Graph(n=connectivities.shape[0], edges=edges, edge_attrs={"weight": upper.data})


def communities(
    graph: "Graph", resolution: float, *, method: PartitionMethod = "leiden", random_state: int = 0,
    flavor: Flavor = "igraph",
) -> Codes:  # fmt: skip
    """Return the cluster of every node, found by modularity. Leiden takes two iterations, as scanpy advises."""
    if flavor == "leidenalg":
        import leidenalg

        parts = leidenalg.find_partition(
            graph, leidenalg.RBConfigurationVertexPartition, weights="weight", resolution_parameter=resolution,
            n_iterations=2, seed=short_seed(random_state),
        )  # fmt: skip
        return np.asarray(parts.membership, dtype=np.intp)
    with _igraph_seed(random_state):
        if method == "leiden":
            found = graph.community_leiden(
                objective_function="modularity", weights="weight", resolution=resolution, n_iterations=2
            )
        else:
            found = graph.community_multilevel(weights="weight", resolution=resolution)
    return np.asarray(found.membership, dtype=np.intp)


@contextmanager
def _igraph_seed(random_state: int) -> Iterator[None]:
    """Seed igraph's random numbers within a block. A lock is needed, because all threads share one generator."""
    import igraph

    with _igraph_lock:
        igraph.set_random_number_generator(random.Random(random_state))  # noqa: S311 - no secret
        try:
            yield
        finally:
            igraph.set_random_number_generator(random)
