"""Find the clusters of a query: partition its cells finely, measure them again, join clusters that overlap."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._clusters.partition import Flavor, as_graph, communities, distance_matrix, nearest, shared_neighbors
from dice._clusters.separation import Measured, shrunken
from dice._clusters.tree import Tree, grow
from dice._errors import InputError
from dice._model.arrays import harmony
from dice._model.counts import CellCounts, alike, halves, recover
from dice._model.inference import Inference
from dice._model.likelihood import Latents
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats, Mask

#: Resolution of the fine partition at the leaves of the tree. Resolutions 2 to 8 gave the same clusters within noise.
FINE = 3.0
#: Maximum number of cells to split the counts of several times. With more cells, one split is precise enough.
SPLIT_CELLS = 20_000


@dataclass(frozen=True)
class Found:
    """The tree of clusters, with the leaf of every cell and of every half of its counts."""

    tree: Tree
    #: Leaf of every cell, then of its 2 s halves (n, 1 + 2 s); -1 for cells without expression.
    leaves: NDArray[np.int16]
    #: Connectivities and distances (n, n) of the cells.
    graph: tuple[sparse.csr_matrix, sparse.csr_matrix]


def check_enough_cells(n: int, n_neighbors: int) -> None:
    if n <= n_neighbors:
        raise InputError(
            f"{n} cells with expression are too few for n_neighbors={n_neighbors}: pass more cells or a smaller "
            "n_neighbors."
        )


def find_clusters(
    query: Query, batches: NDArray[np.str_] | None, *, n_splits: int, n_neighbors: int, flavor: Flavor,
    random_state: int,
) -> Found:  # fmt: skip
    """Return the tree of clusters of all cells with expression. The cells may come from several `batches` (n,)."""
    n, some = len(query.latents), np.flatnonzero(~query.latents.empty)
    check_enough_cells(len(some), n_neighbors)
    _log.say_cost("cluster", len(some))
    # Sort by seed, so that Leiden and the choice of tested cells do not depend on the order in the file.
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
        # Profiles of counts differ between batches, so clusters of several batches are compared by latents only.
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
    """Return the leaf of every half (n, 2 s): the one with the nearest mean, in units of the spread within leaves."""
    n, k = len(codes), halves.shape[-1]
    values = halves.reshape(n, -1, k).astype(np.float64)
    member = sparse.csr_matrix((np.ones(n), (codes, np.arange(n))))
    means = member @ values.mean(1) / np.bincount(codes)[:, None]
    rest = (values - means[codes][:, None]).reshape(-1, k)
    weights = np.linalg.solve(shrunken(rest.T @ rest / len(rest)), means.T)
    offsets = (means.T * weights).sum(0) / 2
    return np.stack([(values[:, one] @ weights - offsets).argmax(1) for one in range(values.shape[1])], axis=1)


@dataclass(frozen=True)
class Remeasured:
    """Cells and repeated measurements of them, in PCA units."""

    #: Denoised cells (n, k), and the denoised halves of every split of their counts (n, n_splits, 2, k).
    whole: Floats
    halves: Floats
    #: Counts (n, d) of the two halves of the first split; d is 0 if the query has no counts.
    first: sparse.csr_array
    second: sparse.csr_array
    #: Projections (n, k) of the cells.
    projection: Floats
    #: Simulated cells (n, k) with the same depths and one common profile: denoised ones, then their projections.
    alike: Floats
    alike_projection: Floats

    @property
    def spaces(self) -> tuple[tuple[Floats, Floats], ...]:
        """Pairs of real and simulated cells, denoised and projected, to tell clusters from differences in depth.

        Both pairs are needed. If depth predicts the cell type, the denoiser moves a simulated cell of that depth to
        that type. Projections, in contrast, change much with depth alone.
        """
        return (self.whole, self.alike), (self.projection, self.alike_projection)

    def corrected(self, shift: Floats) -> Self:
        """Return the cells and their halves, both moved by the `shift` (n, k) of the cell."""
        shift = shift.astype(np.float32)
        return replace(self, whole=self.whole + shift, halves=self.halves + shift[:, None, None])

    def __getitem__(self, cells: Codes) -> Self:
        return type(self)(*(part[cells] for part in vars(self).values()))


def remeasured(query: Query, n_splits: int) -> Remeasured:
    """Measure all cells again, by splitting their counts into halves.

    Without counts, posterior samples replace the halves. They show how certain the posterior is, but not whether
    another measurement would agree.
    """
    n, k, projection = query.matrix.n_cells, query.likelihood.n_latent, np.asarray(query.latents.y)
    if not query.measured:
        _log.warn(
            "Clusters were compared by posterior samples instead of halves of the counts, because the query has no "
            "counts or its prior was trained without counts. They look more reproducible than they are."
        )
        query = replace(query, options=replace(query.options, n_samples=2 * n_splits))
        samples = np.asarray(query.posterior.samples).reshape(n, n_splits, 2, k)
        nowhere, no_counts = np.zeros((n, k), np.float32), sparse.csr_array((n, 0), dtype=np.float32)
        whole = np.asarray(query.posterior.mean)
        return Remeasured(whole, samples, no_counts, no_counts, projection, nowhere, nowhere)
    own = np.zeros(n, dtype=bool) if query.own is None else query.own
    sums = np.maximum(query.latents.gene_sums, 0)
    reader = CellReader(replace(query.inference, own=None), own, n_splits, sums / sums.sum())
    latents, *counts = zip(*query.matrix.each(reader, desc="Halving counts"), strict=True)
    found, (first, second) = np.concatenate(latents), (sparse.csr_array(sparse.vstack(part)) for part in counts)
    pairs = found[:, :-2].reshape(n, n_splits, 2, k)
    return Remeasured(np.asarray(query.posterior.mean), pairs, first, second, projection, found[:, -2], found[:, -1])


@dataclass(frozen=True)
class CellReader:
    """Function that splits the counts of a chunk of cells and denoises the halves."""

    inference: Inference
    #: Mask (n,) of the cells that the loadings were computed from.
    own: Mask
    n_splits: int
    #: Share (d,) of every gene in the expression of all cells.
    profile: Floats

    def __call__(self, chunk: Chunk, rows: slice) -> tuple[Floats, sparse.csr_array, sparse.csr_array]:
        """Return denoised halves and simulated cells (n, 2 n_splits + 2, k), and counts of the first two halves."""
        cells = recover(chunk)
        seeds, own = self.inference.seeds[rows], self.own[rows]
        likelihood = self.inference.likelihood
        found, parts = [], [part for pair in halves(cells, seeds, self.n_splits) for part in pair]
        for part in parts:
            expression, latents = self._read(part)
            latents = likelihood.honest_part(latents, expression, chunk, own)
            found.append(self.inference(latents, rows).mean)
        same = self._read(replace(cells, counts=alike(cells, self.profile, seeds)))[1]
        found += [self.inference(same, rows).mean, np.asarray(same.y)]
        # Cells that do not consist of counts have one measurement only.
        counted = cells.whole & ~np.isnan(cells.factor)
        if not counted.all():
            once = self.inference(likelihood.latents(chunk), rows).mean
            found = [np.where(counted[:, None], part, once) for part in found]
        # Zeros are removed from copies, because both halves share the arrays of their sparse entries.
        first, second = (part.counts.copy() for part in parts[:2])
        first.eliminate_zeros()
        second.eliminate_zeros()
        return np.stack(found, axis=1), first, second

    def _read(self, part: CellCounts) -> tuple[Chunk, Latents]:
        """Return the expression of random parts of cells, and its latents."""
        expression = part.expression
        return expression, self.inference.likelihood.latents(expression, log_depth=part.log_depth)
