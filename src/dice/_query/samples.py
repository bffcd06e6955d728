"""Posterior samples of a query that was denoised before."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice._arguments import from_plain, new_key
from dice._data import read
from dice._data.store import Prior, Reference, find_prior, known_prior
from dice._errors import InputError, SlotError
from dice._keys import DenoiseKeys, PriorKeys
from dice._query.query import Query
from dice.options import OBJECTS, Gaussian, Options


def posterior_samples(
    adata: AnnData, reference: Reference | None, n_samples: int, key: str, prior_key: str = "dice"
) -> NDArray[np.float32]:
    """Return stored samples (n, n_samples, k), or draw samples with the arguments that made the stored embedding."""
    keys = DenoiseKeys(new_key("use_rep", key, "X_dice"))
    if keys.samples in read.names(adata, "obsm"):
        stored = read.array(adata, keys.samples, rows=(slice(None), slice(n_samples)))
        if stored.shape[1] == n_samples:
            return stored
    query = denoised_query(adata, reference, key, prior_key, n_samples=n_samples, uncertainty=False)
    if query is None:
        raise SlotError(f"adata.obsm has no embedding {key!r}: call dice.tl.denoise(adata, reference) first.")
    return np.asarray(query.posterior.samples)


def denoised_query(
    adata: AnnData, reference: Reference | None, key: str, prior_key: str = "dice", **wanted: Any
) -> Query | None:
    """Return the query with the arguments that made the embedding `key`. The options `wanted` replace some of them.

    Return None if no such embedding is stored.
    """
    record = read.record(adata, DenoiseKeys(new_key("use_rep", key, "X_dice")).uns)
    if record is None:
        return None
    if not isinstance(record, Mapping) or not {"call", "params", "shift"} <= record.keys():
        raise SlotError(
            f"adata.uns[{key!r}] was not written by dice.tl.denoise: set use_rep to an embedding of that function, for "
            "example 'X_dice'."
        )
    prior = _prior_of(adata, reference, record, prior_key)
    return Query.of(adata, prior, Options(**stored_call(record), **wanted))


def stored_call(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an earlier call from its record in ``.uns``. They also suit a subset of its cells."""
    likelihood, found = record["call"]["likelihood"], record["params"]
    if isinstance(likelihood, str) and likelihood != "auto":
        raise InputError(
            f"The embedding was made with the function {likelihood!r}, which is not stored: call dice.tl.denoise again "
            "with this function."
        )
    call = from_plain(record["call"], OBJECTS)
    # Shift and noise were estimated from all cells. They must not be estimated again from a subset of the cells.
    call |= {"shift": record["shift"], "check": False}
    assumed = call["likelihood"] if likelihood != "auto" else Gaussian()
    if not found["measured"] and assumed.noise == "estimate" and found["noise"] > 0:
        call["likelihood"] = replace(assumed, noise=float(found["noise"]))
    return call


def _prior_of(adata: AnnData, reference: Reference | None, record: Mapping[str, Any], prior_key: str) -> Prior:
    """Return the prior that made the embedding, from `reference`, from memory, or from `adata`."""
    made_by = str(record["params"].get("prior", ""))
    prior = known_prior(made_by) if reference is None else find_prior(reference, key=prior_key)
    if prior is None and PriorKeys(prior_key).uns in read.names(adata, "uns"):
        prior = find_prior(adata, key=prior_key)
    if prior is None or prior.sha256 != made_by:
        raise InputError(
            "The embedding was made with another prior, which is not in memory: pass its reference as second argument, "
            "or call dice.tl.denoise again."
        )
    return prior
