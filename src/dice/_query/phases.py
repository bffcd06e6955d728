"""The two phases of denoising into a store; each does the chunks that are not finished yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice._anndata import lazy
from dice._anndata.draft import Draft, IntoDraft
from dice._core.standardize import Chunk
from dice._keys import DenoiseKeys
from dice._query.cells import Cells, Projector, warn_of_empty
from dice._query.posterior import NETWORK_CHUNK, Posterior
from dice._query.query import Query


@dataclass(frozen=True)
class _Points:
    """First phase: from expression to latent points and what is left of it."""

    projector: Projector
    keys: DenoiseKeys

    def __call__(self, chunk: Chunk, rows: slice) -> dict[str, NDArray[Any]]:
        cells = self.projector(chunk, rows)
        return {
            f"obsm/{self.keys.projection}": cells.y,
            "scratch/residual": cells.residual,
            "scratch/empty": cells.empty,
        }


@dataclass(frozen=True)
class _Posteriors:
    """Second phase: from latent points, and expression where single genes matter, to the posterior."""

    posterior: Posterior
    #: Residuals and empty cells of the whole query, whose points are in the store.
    cells: Cells
    keys: DenoiseKeys

    def __call__(self, chunk: Chunk, rows: slice) -> dict[str, NDArray[Any]]:
        genes, inference = self.posterior.plan.needs_genes, self.posterior.inference
        y = self.posterior.projector(chunk, rows).y if genes else np.asarray(chunk)
        cells = Cells(y, self.cells.residual[rows], self.cells.empty[rows])
        parts = []
        for first in range(0, len(y), NETWORK_CHUNK):
            part = slice(first, min(first + NETWORK_CHUNK, len(y)))
            where = slice(rows.start + part.start, rows.start + part.stop)
            parts.append(self.posterior.of(inference, cells.take(part), where, chunk[part] if genes else None))
        arrays = {f"obsm/{self.keys.mean}": np.concatenate([part.mean for part in parts])}
        if parts[0].variance is not None:
            arrays["scratch/uncertainty"] = np.sqrt(np.concatenate([part.variance for part in parts]))
        if parts[0].samples is not None:
            arrays[f"obsm/{self.keys.samples}"] = np.concatenate([part.samples for part in parts])
        return arrays


def project(draft: Draft, query: Query, keys: DenoiseKeys) -> Cells:
    """Points, residuals and empty cells of all chunks that are not finished yet."""
    draft.require(f"obsm/{keys.projection}", (query.prior.n_latent,))
    draft.require("scratch/residual", ())
    draft.require("scratch/empty", (), "bool")
    into = IntoDraft(draft, "project", _Points(query.projector, keys))
    query.matrix.each(into, desc="Projecting", skip=draft.finished("project"))
    points = draft.array(f"obsm/{keys.projection}")
    sample = points.oindex[np.flatnonzero(query.sampled)]
    cells = Cells(points, draft.array("scratch/residual")[:], draft.array("scratch/empty")[:], sample)
    warn_of_empty(query.matrix, cells)
    return cells


def denoise_points(draft: Draft, query: Query, keys: DenoiseKeys, cells: Cells, posterior: Posterior) -> None:
    """The posterior of all chunks that are not finished yet."""
    import dask.array as da

    plan, k = posterior.plan, query.prior.n_latent
    draft.require(f"obsm/{keys.mean}", (k,))
    if plan.uncertainty:
        draft.require("scratch/uncertainty", ())
    if plan.gibbs.n_samples:
        draft.require(f"obsm/{keys.samples}", (plan.gibbs.n_samples, k))
    # The points stay where they are: workers get them block by block.
    known = replace(cells, y=np.empty((0, k), dtype=np.float32))
    into = IntoDraft(draft, "denoise", _Posteriors(posterior, known, keys))
    done = draft.finished("denoise")
    if plan.needs_genes:
        query.matrix.each(into, desc="Denoising", skip=done)
    else:
        points = da.from_array(cells.y, chunks=(draft.chunk_size, -1))
        lazy.each(points, into, desc="Denoising", skip=done)
