"""Two-dimensional coordinates of an embedding: computed once, and kept beside it."""

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice._arguments import seed, short_seed
from dice._data import read
from dice._data.write import Slots, write
from dice._errors import InputError
from dice._processes import openmp_threads_kept
from dice._types import Floats, Seed

#: Fewer cells have no neighbourhoods to lay out: the first two latents serve.
MIN_CELLS_UMAP = 4
#: Up to here neighbours are searched exactly; umap's own search spends longer on its compilation.
_MAX_EXACT = 50_000
#: Below this umap compares all pairs of cells, each by a call from Python, and again whenever
#: cells are placed. It gets the distances instead: pl.rho on 2,877 cells went from 55 to 16 s on a busy machine.
_FEW = 4096
#: Maps of references kept in memory, so that the next figure over the same reference is quick.
_MAX_MAPS = 2
_maps: OrderedDict[tuple[str, int, int], Map] = OrderedDict()


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence warnings of umap and numba that users cannot act upon, and restore the number of threads."""
    with openmp_threads_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Map:
    """A 2-D map of an embedding; `placeable` if further cells shall be put on it."""

    #: Identifies the embedding, where the map is that of a reference.
    digest = ""

    def __init__(self, values: Floats, n_neighbors: int, random_state: int, *, placeable: bool) -> None:
        if n_neighbors < 2:
            raise InputError(f"n_neighbors={n_neighbors} is too few for UMAP: pass 2 or more.")
        n_neighbors = min(n_neighbors, len(values) - 1)
        self.n_cells, self.n_latent = values.shape
        self._umap: Any = None
        self._search: Any = None
        if len(values) < MIN_CELLS_UMAP:
            self.coordinates = _first_two(values)
            return
        with _quietly():
            from sklearn.neighbors import NearestNeighbors
            from umap import UMAP

            if placeable and len(values) < _FEW:
                self._search = NearestNeighbors(n_neighbors=n_neighbors).fit(values)
            self._umap = UMAP(
                n_neighbors=n_neighbors, metric="euclidean" if self._search is None else "precomputed",
                precomputed_knn=(None, None, None) if placeable else _neighbors(values, n_neighbors),
                # The spectrum of a graph of a handful of cells cannot be computed.
                init="spectral" if len(values) > 15 else "random",
                random_state=random_state, transform_seed=random_state, n_jobs=1,
            )  # fmt: skip
            known = values if self._search is None else _distances(values)
            self.coordinates = np.asarray(self._umap.fit_transform(known), dtype=np.float32)

    def place(self, values: Floats) -> Floats:
        """Coordinates of cells that the map was not fitted on."""
        if self._umap is None or len(values) == 0:
            return _first_two(values)
        with _quietly():
            near = values if self._search is None else self._search.kneighbors_graph(values, mode="distance")
            return np.asarray(self._umap.transform(near), dtype=np.float32)

    def check_same_space(self, n_latent: int, what: str) -> None:
        """A query can only be placed on the map of the reference whose loadings it was projected on."""
        if n_latent != self.n_latent:
            raise InputError(
                f"{what} has {n_latent} dimensions, but the reference has {self.n_latent}: pass the "
                "reference that the query was denoised with."
            )


def as_keys(use_rep: str | Sequence[str]) -> list[str]:
    """One key of ``obsm``, or several."""
    keys = [use_rep] if isinstance(use_rep, str) else list(use_rep)
    if not keys:
        raise InputError("use_rep is empty: name at least one key of adata.obsm.")
    return keys


def umap_options(n_neighbors: int, random_state: Seed) -> dict[str, Any]:
    """What decides the map of an embedding, in a form that files can hold."""
    return {"n_neighbors": n_neighbors, "random_state": short_seed(seed(random_state))}


def layout(
    adata: AnnData, key: str, *, n_neighbors: int, random_state: int, neighbors_key: str | None = None,
    onto: Map | None = None,
) -> Floats:  # fmt: skip
    """UMAP of ``obsm[key]``, or its place on the map of a reference; from or to the cache in ``obsm``."""
    values = read.embedding(adata, key)
    slot, graph = f"{key}_umap", None
    params: dict[str, Any] = {"n_neighbors": n_neighbors, "random_state": random_state}
    if onto is not None:
        onto.check_same_space(values.shape[1], f"adata.obsm[{key!r}]")
        slot, params = f"{slot}_reference", params | {"reference": onto.digest}
    elif neighbors_key is not None:
        found, of = read.neighbors(adata, neighbors_key)
        if of == key:
            graph, params = found, params | {"neighbors_key": neighbors_key, "graph": _digest(found.data)}
    fingerprints, record = _fingerprints(values), read.record(adata, slot)
    same = isinstance(record, Mapping) and record.get("params") == params and slot in read.names(adata, "obsm")
    # Coordinates hold for a part of their cells as well.
    if same and np.isin(fingerprints, record.get("cells", [])).all():
        return read.array(adata, slot).astype(np.float32)
    if onto is not None:
        coordinates = onto.place(values)
    elif graph is not None:
        coordinates = _from_graph(values, graph, random_state)
    else:
        coordinates = Map(values, n_neighbors, random_state, placeable=False).coordinates
    # Writing to a view would turn it into a copy behind the user's back.
    if not adata.is_view:
        slots = Slots(obsm={slot: coordinates}, uns={slot: {"params": params, "cells": fingerprints}})
        write(adata, slots, copy=False)
    return coordinates


def write_umap(adata: AnnData, key: str, random_state: int) -> None:
    """Set ``obsm["X_umap"]``, which scanpy's plots look for, to the map of an embedding, unless it is there."""
    if "X_umap" not in adata.obsm:
        coordinates = layout(adata, key, **umap_options(15, random_state))
        write(adata, Slots(obsm={"X_umap": coordinates}), copy=False)


def reference_map(reference: AnnData, key: str, *, n_neighbors: int, random_state: int, name: str = "reference") -> Map:
    """Map of a reference, which is not written to."""
    values = read.embedding(reference, key, name=name)
    identity = (_digest(values), n_neighbors, random_state)
    found = _maps.pop(identity, None) or Map(values, n_neighbors, random_state, placeable=True)
    found.digest = identity[0]
    _maps[identity] = found
    while len(_maps) > _MAX_MAPS:
        _maps.popitem(last=False)
    return found


def _fingerprints(values: Floats) -> NDArray[np.uint64]:
    """One number per cell that changes with its embedding, and follows it through subsets."""
    odd = np.random.default_rng(0).integers(2**63, size=values.shape[1], dtype=np.uint64) * 2 + 1
    return np.asarray(values.view(np.uint32).astype(np.uint64) @ odd)


def _digest(values: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def _neighbors(values: Floats, n_neighbors: int) -> tuple[Any, Any, None]:
    """Exact neighbours, each cell first among its own, in the form that UMAP takes."""
    if len(values) > _MAX_EXACT:
        return None, None, None
    from sklearn.neighbors import NearestNeighbors

    distances, indices = NearestNeighbors(n_neighbors=n_neighbors).fit(values).kneighbors(values)
    return indices, distances, None


def _distances(values: Floats) -> Floats:
    """All distances (n, n); by differences, since equal cells are at a distance of exactly zero."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(values, values), dtype=np.float32)


def _first_two(values: Floats) -> Floats:
    padded = np.zeros((len(values), 2), dtype=np.float32)
    padded[:, : min(2, values.shape[1])] = values[:, :2]
    return padded


def _from_graph(values: Floats, graph: Any, random_state: int) -> Floats:
    """UMAP of a given neighbour graph, by scanpy on an object of its own."""
    if len(values) < MIN_CELLS_UMAP:
        return _first_two(values)
    import anndata as ad
    import scanpy as sc

    entry = {"connectivities_key": "connectivities", "params": {"method": "umap", "use_rep": "X"}}
    slots: dict[str, Any] = {"obsm": {"X": values}, "obsp": {"connectivities": graph}, "uns": {"neighbors": entry}}
    cells = ad.AnnData(shape=(len(values), 0), **slots)
    with _quietly():
        # The key is said, as a preset of scanpy's, from 1.13 on, may name another.
        sc.tl.umap(cells, random_state=random_state, key_added="X_umap")
    return read.array(cells, "X_umap").astype(np.float32)
