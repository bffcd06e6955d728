"""Two-dimensional coordinates for plots: computed once, kept beside the embedding they show."""

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dice._errors import InputError, SlotError
from dice._threads import openmp_threads_kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anndata import AnnData

Coordinates = NDArray[np.float32]

#: Fewer cells have no neighbourhoods to lay out: the first two latents serve.
MIN_CELLS_UMAP = 4
#: Up to here neighbours are searched exactly; umap's own search spends longer on its compilation.
_MAX_EXACT = 50_000
#: Maps of references kept in memory, so that the next figure over the same reference is quick.
_MAX_MAPS = 2
_maps: OrderedDict[tuple[str, int, int], Map] = OrderedDict()


@contextmanager
def _apart() -> Iterator[None]:
    """Keep to themselves what umap and numba do: warnings that nobody can act upon, and threads."""
    with openmp_threads_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Map:
    """A 2-D map of an embedding; `placeable` if further cells shall be put on it."""

    def __init__(self, values: Coordinates, n_neighbors: int, random_state: int, *, placeable: bool) -> None:
        if n_neighbors < 2:
            raise InputError(f"n_neighbors={n_neighbors} is too few for UMAP: pass 2 or more.")
        n_neighbors = min(n_neighbors, len(values) - 1)
        self.n_cells, self.n_latent = values.shape
        self._umap: Any = None
        if len(values) < MIN_CELLS_UMAP:
            self.coordinates = _first_two(values)
            return
        with _apart():
            from umap import UMAP

            self._umap = UMAP(
                n_neighbors=n_neighbors,
                precomputed_knn=(None, None, None) if placeable else _neighbors(values, n_neighbors),
                # The spectrum of a graph of a handful of cells cannot be computed.
                init="spectral" if len(values) > 15 else "random",
                random_state=random_state,
                transform_seed=random_state,
                n_jobs=1,
            )
            self.coordinates = np.asarray(self._umap.fit_transform(values), dtype=np.float32)

    def place(self, values: Coordinates) -> Coordinates:
        """Coordinates of cells that the map was not fitted on."""
        if self._umap is None or len(values) == 0:
            return _first_two(values)
        with _apart():
            return np.asarray(self._umap.transform(values), dtype=np.float32)


def read_embedding(adata: AnnData, key: str, *, name: str = "adata") -> Coordinates:
    """Embedding ``obsm[key]`` as a finite float32 array, also from dask, sparse and data frames."""
    from dice._arguments import as_embedding

    if key not in adata.obsm:
        step = "dice.tl.train_prior" if name == "reference" else "dice.tl.denoise"
        raise SlotError(f"{name}.obsm has no {key!r}: run {step} first, or name one of {list(adata.obsm)}.")
    try:
        return np.ascontiguousarray(as_embedding(adata.obsm[key]), dtype=np.float32)
    except InputError as error:
        raise InputError(f"{name}.obsm[{key!r}] cannot be drawn. {error}") from error


def layout(
    adata: AnnData,
    key: str,
    *,
    n_neighbors: int,
    random_state: int,
    neighbors_key: str | None = None,
) -> Coordinates:
    """UMAP of ``obsm[key]``, from or to the cache in ``obsm[f"{key}_umap"]``."""
    values = read_embedding(adata, key)
    params: dict[str, Any] = {"n_neighbors": n_neighbors, "random_state": random_state}
    graph = None if neighbors_key is None else _graph(adata, neighbors_key, key)
    if graph is not None:
        params |= {"neighbors_key": neighbors_key, "graph": _digest(graph.data)}
    slot = f"{key}_umap"
    cached = _cached(adata, slot, values, params)
    if cached is not None:
        return cached
    if graph is None:
        coordinates = Map(values, n_neighbors, random_state, placeable=False).coordinates
    else:
        coordinates = _from_graph(values, graph, random_state)
    _keep(adata, slot, values, coordinates, params)
    return coordinates


def reference_map(
    reference: AnnData, key: str, *, n_neighbors: int, random_state: int, name: str = "reference"
) -> tuple[Map, str]:
    """Map of a reference, which is not written to, and a digest that identifies it."""
    values = read_embedding(reference, key, name=name)
    digest = _digest(values)
    identity = (digest, n_neighbors, random_state)
    found = _maps.pop(identity, None) or Map(values, n_neighbors, random_state, placeable=True)
    _maps[identity] = found
    while len(_maps) > _MAX_MAPS:
        _maps.popitem(last=False)
    return found, digest


def layout_on(adata: AnnData, key: str, onto: Map, digest: str, *, n_neighbors: int, random_state: int) -> Coordinates:
    """``obsm[key]`` placed on a reference's map, from or to ``obsm[f"{key}_umap_reference"]``."""
    values = read_embedding(adata, key)
    check_same_space(values.shape[1], onto, f"adata.obsm[{key!r}]")
    slot = f"{key}_umap_reference"
    params = {"n_neighbors": n_neighbors, "random_state": random_state, "reference": digest}
    cached = _cached(adata, slot, values, params)
    if cached is not None:
        return cached
    coordinates = onto.place(values)
    _keep(adata, slot, values, coordinates, params)
    return coordinates


def check_same_space(n_latent: int, onto: Map, what: str) -> None:
    """A query can only be placed on the map of the reference whose loadings it was projected on."""
    if n_latent != onto.n_latent:
        raise InputError(
            f"{what} has {n_latent} dimensions, but the reference has {onto.n_latent}: pass the "
            "reference that the query was denoised with."
        )


def _cached(adata: AnnData, slot: str, values: Coordinates, params: dict[str, Any]) -> Coordinates | None:
    """Stored coordinates, if they hold for these parameters and all of these cells."""
    record = adata.uns.get(slot)
    if slot not in adata.obsm or not isinstance(record, Mapping) or record.get("params") != params:
        return None
    if not np.isin(_fingerprints(values), record.get("cells", [])).all():
        return None
    return np.asarray(adata.obsm[slot], dtype=np.float32)


def _keep(adata: AnnData, slot: str, values: Coordinates, coordinates: Coordinates, params: dict[str, Any]) -> None:
    # Writing to a view would turn it into a copy behind the user's back.
    if adata.is_view:
        return
    from dice._anndata.write import Slots, write

    record = {"params": params, "cells": _fingerprints(values)}
    write(adata, Slots(obsm={slot: coordinates}, uns={slot: record}), copy=False)


def _fingerprints(values: Coordinates) -> NDArray[np.uint64]:
    """One number per cell that changes with its embedding, and follows it through subsets."""
    odd = np.random.default_rng(0).integers(2**63, size=values.shape[1], dtype=np.uint64) * 2 + 1
    return np.asarray(values.view(np.uint32).astype(np.uint64) @ odd)


def _digest(values: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def _neighbors(values: Coordinates, n_neighbors: int) -> tuple[Any, Any, None]:
    """Exact neighbours, each cell first among its own, in the form that UMAP takes."""
    if len(values) > _MAX_EXACT:
        return None, None, None
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=n_neighbors).fit(values)
    distances, indices = search.kneighbors(values)
    return indices, distances, None


def _first_two(values: Coordinates) -> Coordinates:
    padded = np.zeros((len(values), 2), dtype=np.float32)
    padded[:, : min(2, values.shape[1])] = values[:, :2]
    return padded


def check_neighbors(adata: AnnData, neighbors_key: str, keys: list[str]) -> None:
    """Neighbours must be there, and be those of a representation that is drawn."""
    connectivities(adata, neighbors_key)
    found = graph_rep(adata, neighbors_key)
    if found not in keys:
        raise InputError(
            f"The neighbours {neighbors_key!r} are those of {found!r}, which is not drawn: add it to "
            "use_rep, or leave neighbors_key out."
        )


def graph_rep(adata: AnnData, neighbors_key: str) -> str | None:
    """Representation that a neighbour graph was computed on, where it says so."""
    return adata.uns[neighbors_key].get("params", {}).get("use_rep")


def connectivities(adata: AnnData, neighbors_key: str) -> Any:
    """CSR matrix of a neighbour graph."""
    entry = adata.uns.get(neighbors_key)
    slot = entry.get("connectivities_key", "connectivities") if isinstance(entry, Mapping) else None
    if slot not in adata.obsp:
        raise SlotError(
            f"adata.uns has no neighbours {neighbors_key!r}: run dice.tl.neighbors or "
            "sc.pp.neighbors first, or set neighbors_key to those that there are."
        )
    return adata.obsp[slot].tocsr()


def _graph(adata: AnnData, neighbors_key: str, key: str) -> Any:
    """Connectivities of ``uns[neighbors_key]`` if they are those of this representation."""
    return connectivities(adata, neighbors_key) if graph_rep(adata, neighbors_key) == key else None


def _from_graph(values: Coordinates, graph: Any, random_state: int) -> Coordinates:
    """UMAP of a given neighbour graph, by scanpy on an object of its own."""
    if len(values) < MIN_CELLS_UMAP:
        return _first_two(values)
    import anndata as ad
    import scanpy as sc

    cells = ad.AnnData(shape=(len(values), 0), obsm={"X": values}, obsp={"connectivities": graph})
    cells.uns["neighbors"] = {
        "connectivities_key": "connectivities",
        "params": {"method": "umap", "use_rep": "X"},
    }
    with _apart():
        sc.tl.umap(cells, random_state=random_state)
    return np.asarray(cells.obsm["X_umap"], dtype=np.float32)
