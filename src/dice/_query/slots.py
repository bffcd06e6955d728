"""What denoising leaves in an AnnData object, and keys for results that are not taken by anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from anndata import AnnData

from dice._anndata.write import Slots
from dice._arguments import is_key, new_key, said
from dice._errors import InputError
from dice._keys import DenoiseKeys
from dice._query.query import Query


def denoise_slots(keys: DenoiseKeys, query: Query, warned: list[str]) -> Slots:
    """The posterior of a query, and the record of what was decided."""
    latents, posterior = query.latents, query.posterior
    obsm = {keys.mean: posterior.mean, keys.projection: latents.y}
    obs = {keys.empty: latents.empty} if latents.empty.any() else {}
    if posterior.samples is not None:
        obsm[keys.samples] = posterior.samples
    if posterior.variance is not None:
        obs[keys.uncertainty] = np.sqrt(posterior.variance)
    record = query.record(acceptance=posterior.acceptance) | {"warnings": np.array(warned, dtype=str)}
    stale = frozenset({keys.samples, keys.uncertainty, keys.empty})
    return Slots(obsm=obsm, obs=obs, uns={keys.uns: record}, stale=stale)


def embedding_key(adata: AnnData, key_added: Any) -> str:
    """A key for an embedding, which must not be that of a stored prior."""
    if not is_key(key_added) or holds_prior(adata, key_added):
        raise InputError(
            f"key_added={said(key_added)} cannot name an embedding: pass another one, for example 'X_dice'."
        )
    return str(key_added)


def result_key(adata: AnnData, key_added: Any, example: str, *, besides: str | None = None) -> str:
    """A key for results, which must not be that of a stored prior or of the embedding that they are made from."""
    taken = None if besides is None else new_key("key", besides, "X_dice")
    if new_key("key_added", key_added, example) == taken or holds_prior(adata, key_added):
        raise InputError(
            f"key_added={said(key_added)} is taken by something else: pass another one, for example {example!r}."
        )
    return str(key_added)


def holds_prior(adata: AnnData, key: str) -> bool:
    entry = adata.uns.get(key)
    return isinstance(entry, Mapping) and "format" in entry
