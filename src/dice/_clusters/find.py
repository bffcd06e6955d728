"""Find the clusters of a query: partition its cells finely, measure them again, join clusters that overlap."""

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._clusters.partition import Flavor, as_graph, communities, distance_matrix, nearest, shared_neighbors
from dice._clusters.separation import Measured, shrunken
from dice._clusters.tree import Tree, grow
from dice._errors import InputError
from dice._model.arrays import harmony
from dice._model.counts import alike, halves, recover
from dice._model.inference import Inference
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats, Mask

#: Resolution of the fine partition at the leaves of the tree. Resolutions 2 to 8 gave the same clusters within noise.
FINE = 3.0
#: Maximum number of cells to split the counts of several times. With more cells, one split is precise enough.
SPLIT_CELLS = 20_000


def check_enough_cells(n: int, n_neighbors: int) -> None:
    if n <= n_neighbors:
        raise InputError(f"{n} cells with expression are too few for n_neighbors={n_neighbors}: pass a smaller number.")


def find_clusters(
    query: Query, batches: NDArray[np.str_] | None, *, n_splits: int, n_neighbors: int, flavor: Flavor,
    random_state: int,
) -> tuple[Tree, NDArray[np.int16], tuple[sparse.csr_matrix, sparse.csr_matrix]]:  # fmt: skip
    """Return the tree of clusters, the leaves of the cells, and the connectivities and distances (n, n) of the cells.

    The leaves (n, 1 + 2 s) are the leaf of every cell, then the leaves of its 2 s halves; -1 for cells without
    expression. The cells may come from several `batches` (n,).
    """
    n, some = len(query.latents), np.flatnonzero(~query.latents.empty)
    check_enough_cells(len(some), n_neighbors)
    _log.say_cost("cluster", len(some))
    # Sort by seed, so that Leiden and the choice of tested cells do not depend on the order in the file.
    some = some[np.argsort(query.seeds[some], kind="stable")]
    cells = measured_again(query, some, n_splits if len(some) <= SPLIT_CELLS else 1)
    if batches is not None:
        cells = cells.moved(harmony(cells.whole, batches[some], random_state) - cells.whole)
    with _log.progress(total=3, desc="Finding neighbours", unit="stage") as bar:
        found, distances = nearest(cells.whole, n_neighbors, random_state)
        graph = shared_neighbors(found)
        _log.next_stage(bar, 1, "Finding fine clusters")
        codes = communities(as_graph(graph), FINE, flavor=flavor, random_state=random_state)
        codes = np.unique(codes, return_inverse=True)[1]
        _log.next_stage(bar, 1, "Comparing clusters")
        tree = grow(codes, graph, cells.apart)
        bar.update()
    leaves = np.full((n, 1 + 2 * cells.halves.shape[1]), -1, dtype=np.int16)
    leaves[some] = np.column_stack([codes, _placed(codes, cells.halves)])
    place = sparse.csr_matrix((np.ones(len(some), np.float32), (some, np.arange(len(some)))), shape=(n, len(some)))
    return tree, leaves, (place @ graph @ place.T, place @ distance_matrix(found, distances) @ place.T)


def _placed(codes: Codes, halves: Floats) -> Codes:
    """Return the leaf of every half (n, 2 s): the leaf with the nearest mean, in units of the spread within leaves."""
    n, k = len(codes), halves.shape[-1]
    values = halves.reshape(n, -1, k).astype(np.float64)
    member = sparse.csr_matrix((np.ones(n), (codes, np.arange(n))))
    means = member @ values.mean(1) / np.bincount(codes)[:, None]
    rest = (values - means[codes][:, None]).reshape(-1, k)
    weights = np.linalg.solve(shrunken(rest.T @ rest / len(rest)), means.T)
    offsets = (means.T * weights).sum(0) / 2
    return np.stack([(values[:, one] @ weights - offsets).argmax(1) for one in range(values.shape[1])], axis=1)


def measured_again(query: Query, some: Codes, n_splits: int) -> Measured:
    """Return the cells `some` with repeated measurements. Each measurement is one half of the counts of a cell.

    Without counts, posterior samples replace the halves. They show how certain the posterior is, but not whether
    another measurement would agree.
    """
    shape = len(some), n_splits, 2, query.prior.n_latent
    if not query.measured:
        _log.warn(
            "Clusters were compared by posterior samples instead of halves of the counts, because the query has no "
            "counts or its prior was trained without counts. The clusters look more reproducible than they are."
        )
        posterior = replace(query, options=replace(query.options, n_samples=2 * n_splits)).posterior
        return Measured(posterior.mean[some], np.reshape(posterior.samples[some], shape), depth=1.0)
    own = np.zeros(len(query.seeds), dtype=bool) if query.own is None else query.own
    sums = np.maximum(query.latents.gene_sums, 0)
    read = partial(_halved, replace(query.inference, own=None), own, n_splits, sums / sums.sum())
    latents, *counts = zip(*query.matrix.each(read, desc="Halving counts"), strict=True)
    found, whole = np.concatenate(latents)[some], query.posterior.mean[some]
    spaces = (whole, found[:, -2]), (query.latents.y[some], found[:, -1])
    of_halves = tuple(sparse.csr_array(sparse.vstack(part))[some] for part in counts)
    return Measured(whole, found[:, :-2].reshape(shape), spaces, counts=of_halves)


def _halved(
    inference: Inference, own: Mask, n_splits: int, profile: Floats, chunk: Chunk, rows: slice
) -> tuple[Floats, sparse.csr_array, sparse.csr_array]:
    """Return denoised halves and simulated cells (n, 2 n_splits + 2, k), and the counts of the first two halves.

    The simulated cells have the depths of the cells and one common `profile`, the share (d,) of every gene. Two entries
    per cell are simulated: one denoised, one only projected. `own` (n,) is a mask of the cells that the loadings were
    computed from.
    """
    likelihood, cells, seeds = inference.likelihood, recover(chunk), inference.seeds[rows]
    found, parts = [], [part for pair in halves(cells, seeds, n_splits) for part in pair]
    for part in parts:
        expression = part.expression
        latents = likelihood.latents(expression, log_depth=part.log_depth)
        found.append(inference(likelihood.honest_part(latents, expression, chunk, own[rows]), rows).mean)
    simulated = replace(cells, counts=alike(cells, profile, seeds))
    same = likelihood.latents(simulated.expression, log_depth=simulated.log_depth)
    found += [inference(same, rows).mean, np.asarray(same.y)]
    # Cells whose values are not counts have one measurement only.
    counted = cells.whole & ~np.isnan(cells.factor)
    if not counted.all():
        once = inference(likelihood.latents(chunk), rows).mean
        found = [np.where(counted[:, None], part, once) for part in found]
    # Zeros are removed from copies, because both halves share the arrays of their sparse entries.
    first, second = (part.counts.copy() for part in parts[:2])
    first.eliminate_zeros()
    second.eliminate_zeros()
    return np.stack(found, axis=1), first, second
