"""A query whose latents and posterior are in a store on disk. Each phase computes the unfinished chunks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice._data import lazy
from dice._data.files import Draft, IntoDraft
from dice._keys import DenoiseKeys
from dice._model.inference import Inference
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.sampler import Posterior
from dice._query.query import Query
from dice._types import Chunk


@dataclass(frozen=True)
class StreamedQuery(Query):
    """A query that is read from a file and written to a store."""

    draft: Draft = field(kw_only=True)
    keys: DenoiseKeys = field(kw_only=True)

    @cached_property
    def latents(self) -> Latents:
        """First phase: write the noisy latents and the residuals into the store."""
        draft, where = self.draft, f"obsm/{self.keys.projection}"
        draft.require(where, (self.prior.n_latent,))
        draft.require("scratch/residual", ())
        draft.require("scratch/empty", (), "bool")
        draft.require("scratch/log_depth", ())
        into = IntoDraft(draft, "project", partial(_latents, self.likelihood, where))
        self.matrix.each(into, desc="Projecting", skip=draft.finished("project"))
        y, order = draft.array(where), np.argsort(self.sampled)
        sample = y.oindex[self.sampled[order]][np.argsort(order)]
        residual, empty, depth = (draft.array(f"scratch/{name}")[:] for name in ("residual", "empty", "log_depth"))
        latents = Latents(y, residual, empty, depth, sample)
        self.warn_of_empty(latents)
        return latents

    @property
    def device(self) -> str:
        """Device of this process. Workers have their own."""
        return "cpu"

    @cached_property
    def posterior(self) -> Posterior:
        """Second phase: write the posterior into the store, from latents, or from expression if the plan needs it."""
        import dask.array as da

        draft, plan, keys, k = self.draft, self.plan, self.keys, self.prior.n_latent
        draft.require(f"obsm/{keys.mean}", (k,))
        if plan.uncertainty:
            draft.require("scratch/variance", ())
        if plan.n_samples:
            draft.require(f"obsm/{keys.samples}", (plan.n_samples, k))
        # The latents stay in the store; workers get them block by block.
        known = replace(self.latents, y=np.empty((0, k), dtype=np.float32))
        into = IntoDraft(draft, "denoise", _Posteriors(self.inference, known, keys))
        done = draft.finished("denoise")
        if plan.needs_genes:
            self.matrix.each(into, desc="Denoising", skip=done)
        else:
            lazy.each(da.from_array(self.latents.y, chunks=(draft.chunk_size, -1)), into, desc="Denoising", skip=done)
        variance = draft.array("scratch/variance")[:] if plan.uncertainty else None
        return Posterior(draft.array(f"obsm/{keys.mean}"), None, variance)


@dataclass(frozen=True)
class _Posteriors:
    """Compute the arrays of the store from a block of latents, or of expression if the plan needs it."""

    inference: Inference
    #: Residuals, empty cells and depths of the whole query. Its latents are in the store.
    known: Latents
    keys: DenoiseKeys

    def __call__(self, chunk: Chunk, rows: slice) -> dict[str, NDArray[Any]]:
        genes = self.inference.plan.needs_genes
        y = self.inference.likelihood.latents(chunk).y if genes else np.asarray(chunk)
        known = self.known
        latents = Latents(y, known.residual[rows], known.empty[rows], known.log_depth[rows])
        found = self.inference(latents, rows, chunk if genes else None)
        parts = {
            f"obsm/{self.keys.mean}": found.mean,
            f"obsm/{self.keys.samples}": found.samples,
            "scratch/variance": found.variance,
        }
        return {place: part for place, part in parts.items() if part is not None}


def _latents(likelihood: GaussianLikelihood, where: str, chunk: Chunk, rows: slice) -> dict[str, NDArray[Any]]:
    latents = likelihood.latents(chunk)
    scratch = {f"scratch/{name}": getattr(latents, name) for name in ("residual", "empty", "log_depth")}
    return {where: latents.y, **scratch}
