"""Checks of the arguments of the tools: one sentence with what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from anndata import AnnData

from dice._arguments import choice as choice
from dice._arguments import is_key, new_key
from dice._arguments import number as number
from dice._arguments import whole_number as whole_number
from dice._errors import InputError

#: Default rho in units of the prior's latent scale.
DEFAULT_RHO = 0.5


def resolve_rho(rho: float | Sequence[float] | str | None, latent_scale: float) -> float | list[float]:
    """rho as a number or a list of them; None is half of the latent scale, for queries that the reference knows."""
    if rho is None:
        return DEFAULT_RHO * latent_scale
    try:
        values = np.asarray(rho, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array(np.nan)
    if values.ndim > 1 or not values.size or not np.isfinite(values).all() or (values < 0).any():
        raise InputError(f"rho={rho} is not a number of at least 0, a (start, end) pair or a sequence of them.")
    return float(values) if values.ndim == 0 else values.tolist()


def check_deconvolve(level: float, reference_noise: float) -> None:
    """Deconvolution removes the reference's noise from the query's, which must be larger."""
    if level <= reference_noise:
        raise InputError(
            f"deconvolve=True needs more noise than the reference's own ({reference_noise:.3g}), but noise and rho "
            f"make {level:.3g}: pass rho={1.05 * reference_noise:.3g} or more."
        )


def check_prior_key(key_added: Any) -> str:
    """A key for a prior."""
    if not is_key(key_added):
        raise InputError(f"key_added={key_added!r} cannot name a prior: pass a word, for example 'dice'.")
    return key_added


def check_key(adata: AnnData, key_added: Any) -> str:
    """A key for an embedding, which must not be that of a stored prior."""
    if not is_key(key_added) or _holds_prior(adata.uns.get(key_added)):
        raise InputError(f"key_added={key_added!r} cannot name an embedding: pass another one, for example 'X_dice'.")
    return key_added


def result_key(adata: AnnData, key_added: Any, example: str, *, besides: str | None = None) -> str:
    """A key for results, which must not be that of a stored prior or of the embedding that they are made from."""
    taken = None if besides is None else new_key("key", besides, "X_dice")
    if new_key("key_added", key_added, example) == taken or _holds_prior(adata.uns.get(key_added)):
        raise InputError(
            f"key_added={key_added!r} is taken by something else: pass another one, for example {example!r}."
        )
    return str(key_added)


def _holds_prior(entry: Any) -> bool:
    return isinstance(entry, Mapping) and "format" in entry
