"""Find the clusters of a query: partition its cells finely, measure them again, and join what is not separate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._clusters.partition import Flavor, as_graph, communities, distance_matrix, nearest, shared_neighbors
from dice._clusters.remeasured import remeasured
from dice._clusters.separation import Measured, shrunken
from dice._clusters.tree import Tree, grow
from dice._errors import InputError
from dice._model.batches import harmony
from dice._query.query import Query
from dice._types import Codes, Floats

#: Resolution of the fine partition that the tree begins with. Resolutions 2 to 8 gave the same clusters within noise.
FINE = 3.0
#: Largest number of cells whose counts are split several times. With more cells, one split is precise enough.
SPLIT_CELLS = 20_000


@dataclass(frozen=True)
class Found:
    """The tree of clusters, and the leaf of every cell and of every half of its counts."""

    tree: Tree
    #: Leaf of every cell and of its 2 s halves (n, 1 + 2 s); -1 for cells without expression.
    leaves: NDArray[np.int16]
    #: Connectivities and distances (n, n).
    graph: tuple[sparse.csr_matrix, sparse.csr_matrix]


def check_enough_cells(n: int, n_neighbors: int) -> None:
    if n <= n_neighbors:
        raise InputError(
            f"{n} cells with expression are too few for n_neighbors={n_neighbors}: pass more cells, or a smaller "
            "number."
        )


def find_clusters(
    query: Query, batches: NDArray[np.str_] | None, *, n_splits: int, n_neighbors: int, flavor: Flavor,
    random_state: int,
) -> Found:  # fmt: skip
    """Return the tree of clusters of all cells with expression, which may be of several `batches` (n,)."""
    n, some = len(query.latents), np.flatnonzero(~query.latents.empty)
    check_enough_cells(len(some), n_neighbors)
    _log.say_cost("cluster", len(some))
    # Sort by cell seed: Leiden and the choice of tested cells must not depend on the order in the file.
    some = some[np.argsort(query.seeds[some], kind="stable")]
    cells = remeasured(query, n_splits if len(some) <= SPLIT_CELLS else 1)[some]
    if batches is not None:
        cells = cells.corrected(harmony(cells.whole, batches[some], random_state) - cells.whole)
    with _log.progress(total=3, desc="Finding neighbours", unit="stage") as bar:
        found, distances = nearest(cells.whole, n_neighbors, random_state)
        graph = shared_neighbors(found)
        bar.update()
        bar.set_description("Finding fine clusters")
        codes = communities(as_graph(graph), FINE, flavor=flavor, random_state=random_state)
        codes = np.unique(codes, return_inverse=True)[1]
        bar.update()
        bar.set_description("Comparing clusters")
        # Batches differ in their profiles of counts: clusters of several batches are told apart by latents only.
        counts = (cells.first, cells.second) if batches is None else ()
        about = (cells.spaces, 2.0, counts) if query.measured else ((), 1.0)
        tree = grow(codes, graph, Measured(cells.whole, cells.halves, *about).apart)
        bar.update()
    leaves = np.full((n, 1 + 2 * cells.halves.shape[1]), -1, dtype=np.int16)
    leaves[some] = np.column_stack([codes, _placed(codes, cells.halves)])
    place = sparse.csr_matrix((np.ones(len(some), np.float32), (some, np.arange(len(some)))), shape=(n, len(some)))
    everywhere = [sparse.csr_matrix(place @ one @ place.T) for one in (graph, distance_matrix(found, distances))]
    return Found(tree, leaves, (everywhere[0].astype(np.float32), everywhere[1]))


def _placed(codes: Codes, halves: Floats) -> Codes:
    """Return the leaf of every half (n, 2 s): the nearest mean of halves, relative to their spread within leaves."""
    n, k = len(codes), halves.shape[-1]
    values = halves.reshape(n, -1, k).astype(np.float64)
    member = sparse.csr_matrix((np.ones(n), (codes, np.arange(n))))
    means = member @ values.mean(1) / np.bincount(codes)[:, None]
    rest = (values - means[codes][:, None]).reshape(-1, k)
    weights = np.linalg.solve(shrunken(rest.T @ rest / len(rest)), means.T)
    offsets = (means.T * weights).sum(0) / 2
    return np.stack([(values[:, one] @ weights - offsets).argmax(1) for one in range(values.shape[1])], axis=1)
