"""Compute neighbour graphs and UMAPs of embeddings with scanpy. UMAPs are kept beside the embedding."""

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import anndata as ad
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._arguments import as_embedding, short_seed, whole_number
from dice._clusters.partition import as_graph
from dice._data import read
from dice._data.write import Slots, write
from dice._errors import InputError
from dice._processes import openmp_threads_kept
from dice._types import Floats

if TYPE_CHECKING:
    from igraph import Graph

#: Connectivities and distances (n, n).
NeighborGraph: TypeAlias = tuple[sparse.csr_matrix, sparse.csr_matrix]

#: Averaged connectivities below this value are dropped. They belong to edges of few samples and little weight.
MIN_WEIGHT = 1e-3
#: Minimum number of cells for a UMAP. With fewer cells, the first two latents are drawn instead.
MIN_CELLS_UMAP = 4
#: Maximum number of cells of a map with exact neighbours.
MAX_EXACT = 50_000
#: Neighbours of a cell on a map, as in scanpy.
MAP_NEIGHBORS = 15
#: The map of the last reference, so that the next figure of the same reference is quick.
_last_map: dict[str, "Map"] = {}


def neighbor_graph(cells: Any, n_neighbors: int) -> "Graph":
    """Return the exact graph of an embedding (n, k), or the graph of sparse connectivities (n, n)."""
    if not sparse.issparse(cells) or cells.shape[0] != cells.shape[1]:
        return as_graph(_exact(as_embedding(cells), n_neighbors).obsp["connectivities"])
    if not np.isfinite(cells.data).all() or (cells.data < 0).any() or abs(cells - cells.T).max() > 1e-6:
        raise InputError("The sparse matrix must be an undirected weighted graph: pass connectivities, not distances.")
    return as_graph(cells)


def umap_layout(values: Floats, n_neighbors: int, random_state: int) -> Floats:
    """Return scanpy's two-dimensional UMAP of an embedding (n, k)."""
    return _drawn(_exact(values, n_neighbors), random_state)


def sample_graphs(
    embeddings: Sequence[Floats], n_neighbors: int, metric: str, random_state: int
) -> Iterator[NeighborGraph]:
    """Yield scanpy's connectivities and distances of embeddings (n, k) of the same cells, one after the other."""
    with _log.progress(total=len(embeddings), desc="Neighbours", unit="graph") as bar:
        for embedding in embeddings:
            cells = _with_neighbors(embedding, n_neighbors, metric=metric, random_state=short_seed(random_state))
            distances = sparse.csr_matrix(cells.obsp["distances"])
            # A distance of zero between two identical cells is also an edge.
            distances.data = np.maximum(distances.data, np.finfo(np.float64).tiny)
            yield sparse.csr_matrix(cells.obsp["connectivities"]), distances
            bar.update()


def average_graph(graphs: Iterable[NeighborGraph]) -> NeighborGraph:
    """Return mean connectivities of graphs of the same cells, and the mean distance over the graphs with an edge."""
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


def graph_slots(
    key_added: str, graph: NeighborGraph, n_neighbors: int, metric: str, random_state: int, use_rep: str
) -> tuple[dict[str, Any], dict[str, sparse.csr_matrix]]:
    """Return the entries of ``uns`` and ``obsp`` that scanpy reads with ``neighbors_key=key_added``."""
    names = {f"{part}_key": f"{key_added}_{part}" for part in ("connectivities", "distances")}
    params = {"n_neighbors": n_neighbors, "method": "umap", "random_state": random_state}
    params |= {"metric": metric, "use_rep": use_rep}
    return names | {"params": params}, dict(zip(names.values(), graph, strict=True))


def _exact(values: Floats, n_neighbors: int) -> ad.AnnData:
    """Return an AnnData object with scanpy's graph of exact neighbours, which does not depend on a seed."""
    n_neighbors = whole_number("n_neighbors", n_neighbors, least=2)
    if len(values) < 2:
        raise InputError(f"A neighbour graph needs two cells or more, got {len(values)}: pass more cells.")
    return _with_neighbors(values, min(n_neighbors, len(values)), transformer="sklearn")


def _with_neighbors(values: Floats, n_neighbors: int, **search: Any) -> ad.AnnData:
    """Return a new AnnData object with the embedding and scanpy's neighbour graph."""
    import scanpy as sc

    cells = ad.AnnData(shape=(len(values), 0), obsm={"X": np.ascontiguousarray(values)})
    with openmp_threads_kept(), warnings.catch_warnings():
        # scipy warns if cells are identical, but the graph is right.
        warnings.simplefilter("ignore", sparse.SparseEfficiencyWarning)
        sc.pp.neighbors(cells, n_neighbors=n_neighbors, use_rep="X", **search)
    return cells


def _drawn(cells: ad.AnnData, random_state: int) -> Floats:
    """Return scanpy's UMAP of an AnnData object with a neighbour graph."""
    import scanpy as sc

    with openmp_threads_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Users cannot act upon warnings of umap and numba.
        # The spectrum of a graph of a handful of cells cannot be computed. The key is given because a preset of
        # scanpy, from 1.13 on, may name another.
        start = "spectral" if cells.n_obs > 15 else "random"
        sc.tl.umap(cells, random_state=short_seed(random_state), key_added="X_umap", init_pos=start)
    return np.asarray(cells.obsm["X_umap"], dtype=np.float64)


class Map:
    """UMAP (n, 2) of an embedding (n, k), with scanpy's defaults. The order of the cells does not matter."""

    def __init__(self, values: Floats) -> None:
        self.values = values
        self.n_cells, self.n_latent = values.shape
        self.digest = _digest(values)
        self.coordinates = _first_two(values)
        if self.n_cells < MIN_CELLS_UMAP:
            return
        order = np.argsort(_fingerprints(values), kind="stable")
        search = _exact if self.n_cells <= MAX_EXACT else _with_neighbors
        self.coordinates[order] = _drawn(search(values[order], MAP_NEIGHBORS), random_state=0)

    def place(self, values: Floats) -> Floats:
        """Return coordinates of other cells: the mean over their neighbours on the map, weighted by 1 / distance."""
        if not len(values) or self.n_cells < MIN_CELLS_UMAP:
            return _first_two(values)
        from sklearn.neighbors import KNeighborsRegressor

        places = KNeighborsRegressor(min(MAP_NEIGHBORS, self.n_cells), weights="distance")
        return np.asarray(places.fit(self.values, self.coordinates).predict(values), dtype=np.float32)

    def check_same_space(self, n_latent: int, what: str) -> None:
        """Refuse cells that were not projected on the loadings of this map's reference."""
        if n_latent != self.n_latent:
            raise InputError(
                f"{what} has {n_latent} dimensions, not {self.n_latent}: pass the reference it was denoised with."
            )


def layout(adata: ad.AnnData, key: str, onto: Map | None = None) -> Floats:
    """Return the UMAP of ``obsm[key]``, or coordinates of its cells on the map of a reference (`onto`).

    The result is kept in ``obsm`` for the next call.
    """
    values = read.embedding(adata, key)
    slot, reference = f"{key}_umap", ""
    if onto is not None:
        onto.check_same_space(values.shape[1], f"adata.obsm[{key!r}]")
        slot, reference = f"{slot}_reference", onto.digest
    fingerprints, record = _fingerprints(values), read.record(adata, slot)
    same = isinstance(record, Mapping) and record.get("reference") == reference and slot in read.names(adata, "obsm")
    # Stored coordinates are also valid for a subset of their cells.
    if same and np.isin(fingerprints, record.get("cells", [])).all():
        return read.array(adata, slot).astype(np.float32)
    coordinates = Map(values).coordinates if onto is None else onto.place(values)
    # Writing to a view would turn it into a copy.
    if not adata.is_view:
        slots = Slots(obsm={slot: coordinates}, uns={slot: {"reference": reference, "cells": fingerprints}})
        write(adata, slots, copy=False)
    return coordinates


def write_umap(adata: ad.AnnData, key: str) -> None:
    """Set ``obsm["X_umap"]``, which scanpy's plots use, to the UMAP of an embedding, unless it exists."""
    if "X_umap" not in adata.obsm:
        write(adata, Slots(obsm={"X_umap": layout(adata, key)}), copy=False)


def reference_map(reference: ad.AnnData, key: str, *, name: str = "reference") -> Map:
    """Return the map of a reference. Nothing is written to the reference."""
    values = read.embedding(reference, key, name=name)
    digest = _digest(values)
    if digest not in _last_map:
        found = Map(values)
        _last_map.clear()
        _last_map[digest] = found
    return _last_map[digest]


def _fingerprints(values: Floats) -> NDArray[np.uint64]:
    """Return a number for each cell that depends only on its embedding."""
    odd = np.random.default_rng(0).integers(2**63, size=values.shape[1], dtype=np.uint64) * 2 + 1
    return np.asarray(values.view(np.uint32).astype(np.uint64) @ odd)


def _digest(values: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def _first_two(values: Floats) -> Floats:
    missing = max(2 - values.shape[1], 0)
    return np.pad(values[:, :2], ((0, 0), (0, missing))).astype(np.float32)
