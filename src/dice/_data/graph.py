"""scanpy's neighbour graphs of embeddings, and what is made of them: averages, communities and UMAP."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy import sparse

from dice import _log
from dice._arguments import as_embedding, short_seed, whole_number
from dice._clusters.partition import as_graph, check_resolutions, communities
from dice._errors import InputError
from dice._processes import openmp_threads_kept
from dice._types import Codes, Floats

if TYPE_CHECKING:
    from anndata import AnnData
    from igraph import Graph

#: Connectivities and distances (n, n).
NeighborGraph: TypeAlias = tuple[sparse.csr_matrix, sparse.csr_matrix]

#: Averaged connectivities below this are dropped: edges of few samples and little weight.
MIN_WEIGHT = 1e-3


def leiden(cells: Any, *, resolution: float = 1.0, n_neighbors: int = 15, random_state: int = 0) -> Codes:
    """Leiden clusters of an embedding, or of a graph as :func:`neighbor_graph` takes it."""
    check_resolutions([resolution])
    return communities(neighbor_graph(cells, n_neighbors), resolution, random_state=random_state)


def neighbor_graph(cells: Any, n_neighbors: int) -> Graph:
    """The exact graph of an embedding (n, k), or the one that sparse connectivities (n, n) hold."""
    if not sparse.issparse(cells) or cells.shape[0] != cells.shape[1]:
        return as_graph(_exact(as_embedding(cells), n_neighbors).obsp["connectivities"])
    if not np.isfinite(cells.data).all() or (cells.data < 0).any() or abs(cells - cells.T).max() > 1e-6:
        raise InputError("The sparse matrix must be an undirected weighted graph: pass connectivities, not distances.")
    return as_graph(cells)


def umap_layout(values: Floats, n_neighbors: int, random_state: int) -> Floats:
    """The two-dimensional UMAP that scanpy draws."""
    import scanpy as sc

    cells = _exact(values, n_neighbors)
    with openmp_threads_kept():
        # The key is said, as a preset of scanpy's, from 1.13 on, may name another.
        sc.tl.umap(cells, random_state=short_seed(random_state), key_added="X_umap")
    return np.asarray(cells.obsm["X_umap"], dtype=np.float64)


def sample_graphs(
    embeddings: Sequence[Floats], n_neighbors: int, metric: str, random_state: int
) -> Iterator[NeighborGraph]:
    """The graphs of embeddings (n, k) of the same cells, one after the other."""
    # The first one of a process waits for umap to be compiled: 11.4 s of the 11.6 s that nine graphs of 877 cells took.
    desc = "Neighbours" if "umap" in sys.modules else "Neighbours (the search is compiled first)"
    with _log.progress(total=len(embeddings), desc=desc, unit="graph") as bar:
        for embedding in embeddings:
            yield sample_graph(embedding, n_neighbors, metric, random_state)
            bar.update()
            bar.set_description("Neighbours", refresh=False)


def average_graph(graphs: Iterable[NeighborGraph]) -> NeighborGraph:
    """Mean connectivities over graphs of the same cells, and mean distances where there was an edge."""
    found = list(graphs)
    weights = sum(connectivities for connectivities, _ in found) / len(found)
    lengths, edges = (sum(parts) for parts in zip(*((d, (d > 0).astype(np.float64)) for _, d in found), strict=True))
    weights = weights.astype(np.float32)
    weights.data[weights.data < MIN_WEIGHT] = 0
    weights.eliminate_zeros()
    # Both have the same entries: every edge that was found in any sample.
    lengths.sort_indices()
    edges.sort_indices()
    lengths.data /= edges.data
    return weights, lengths


def sample_graph(embedding: Floats, n_neighbors: int, metric: str, random_state: int) -> NeighborGraph:
    """Connectivities and distances that scanpy computes for one embedding (n, k)."""
    cells = _with_neighbors(embedding, n_neighbors, metric=metric, random_state=short_seed(random_state))
    distances = sparse.csr_matrix(cells.obsp["distances"])
    # A distance of zero between two equal cells is an edge all the same.
    distances.data = np.maximum(distances.data, np.finfo(np.float64).tiny)
    return sparse.csr_matrix(cells.obsp["connectivities"]), distances


def graph_slots(
    key_added: str, graph: NeighborGraph, n_neighbors: int, metric: str, random_state: int, use_rep: str
) -> tuple[dict[str, Any], dict[str, sparse.csr_matrix]]:
    """The entry of ``uns`` and those of ``obsp`` that scanpy looks for under ``neighbors_key=key_added``."""
    names = {f"{part}_key": f"{key_added}_{part}" for part in ("connectivities", "distances")}
    params = {"n_neighbors": n_neighbors, "method": "umap", "random_state": random_state}
    params |= {"metric": metric, "use_rep": use_rep}
    return names | {"params": params}, dict(zip(names.values(), graph, strict=True))


def _exact(values: Floats, n_neighbors: int) -> AnnData:
    """An object with the exact neighbours of all cells, which no seed decides."""
    n_neighbors = whole_number("n_neighbors", n_neighbors, least=2)
    if len(values) < 2:
        raise InputError("A neighbour graph needs two cells and n_neighbors=2 or more: raise them.")
    return _with_neighbors(values, min(n_neighbors, len(values)), transformer="sklearn")


def _with_neighbors(values: Floats, n_neighbors: int, **search: Any) -> AnnData:
    """The embedding in an object of its own, with scanpy's neighbours."""
    import anndata as ad
    import scanpy as sc

    cells = ad.AnnData(shape=(len(values), 0), obsm={"X": np.ascontiguousarray(values)})
    with openmp_threads_kept(), warnings.catch_warnings():
        # Raised where cells coincide; the graph is right.
        warnings.simplefilter("ignore", sparse.SparseEfficiencyWarning)
        sc.pp.neighbors(cells, n_neighbors=n_neighbors, use_rep="X", **search)
    return cells
