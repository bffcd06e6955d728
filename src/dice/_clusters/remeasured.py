"""Measure the cells of a query again: split their counts into two halves, and denoise each half alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from dice import _log
from dice._model.counts import CellCounts, alike, halves, recover
from dice._model.inference import Inference
from dice._model.likelihood import Latents
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats, Mask


@dataclass(frozen=True)
class Remeasured:
    """Cells and repeated measurements of them, in PCA units."""

    #: The denoised cells (n, k), and the two halves of every split of their counts (n, n_splits, 2, k).
    whole: Floats
    halves: Floats
    #: Counts (n, d) of the two halves of the first split; without genes if the query has no counts.
    first: sparse.csr_array
    second: sparse.csr_array
    #: Projections (n, k) of the cells.
    projection: Floats
    #: Simulated cells (n, k) with the same depths and one common profile, denoised and projected.
    alike: Floats
    alike_projection: Floats

    @property
    def spaces(self) -> tuple[tuple[Floats, Floats], ...]:
        """Real beside simulated cells, denoised and projected, to tell clusters from differences in depth.

        Both are needed. If depth predicts the type, the denoiser gives a simulated cell of that depth the features of
        that type. Projections in turn move far with depth alone.
        """
        return (self.whole, self.alike), (self.projection, self.alike_projection)

    def corrected(self, shift: Floats) -> Remeasured:
        """Return the cells and their halves, each moved by the shift (n, k) of its cell."""
        shift = shift.astype(np.float32)
        return replace(self, whole=self.whole + shift, halves=self.halves + shift[:, None, None])

    def __getitem__(self, cells: Codes) -> Remeasured:
        return Remeasured(*(part[cells] for part in vars(self).values()))


def remeasured(query: Query, n_splits: int) -> Remeasured:
    """Measure all cells again by halves of their counts.

    Without counts, posterior samples take the place of the halves. They show how certain the posterior is, not whether
    another measurement would agree.
    """
    n, k, projection = query.matrix.n_cells, query.likelihood.n_latent, np.asarray(query.latents.y)
    if not query.measured:
        _log.warn(
            "The query is not read as counts with measured noise: posterior samples take the place of two halves of "
            "the counts, so that clusters look more reproducible than they are."
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
    """Compute the halves of a chunk of cells from its expression."""

    inference: Inference
    #: Cells (n,) that the loadings were computed from.
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
        # Cells without counts have one measurement only.
        counted = cells.whole & ~np.isnan(cells.factor)
        if not counted.all():
            once = self.inference(likelihood.latents(chunk), rows).mean
            found = [np.where(counted[:, None], part, once) for part in found]
        # Halves share the places of their entries: copies can lose zeros.
        first, second = (part.counts.copy() for part in parts[:2])
        first.eliminate_zeros()
        second.eliminate_zeros()
        return np.stack(found, axis=1), first, second

    def _read(self, part: CellCounts) -> tuple[Chunk, Latents]:
        """Return the expression of parts of cells and its latents."""
        expression = part.expression
        return expression, self.inference.likelihood.latents(expression, log_depth=part.log_depth)
