"""What plots need to know of a prior, from wherever it is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from anndata import AnnData

from dice._anndata import read
from dice._errors import PriorFormatError
from dice._types import Floats

if TYPE_CHECKING:
    from dice._core.prior.prior import Prior


@dataclass(frozen=True)
class Summary:
    """Course of the training and spectrum of the reference."""

    preset: str
    n_latent: int
    history: Mapping[str, Floats]
    singular_values: Floats


def summarize(source: AnnData | Prior | str | os.PathLike[str], key: str) -> Summary:
    """Read the summary of a prior from an AnnData object, a prior or a file.

    From an AnnData object without the network, so that a plot neither builds it nor needs torch.
    """
    if not isinstance(source, AnnData):
        from dice._anndata.store import find_prior

        prior = find_prior(source, key=key)
        return _summary(prior.preset, prior.n_latent, prior.history, prior.projection.singular_values)
    raw = read.record(source, key, what="prior", step="dice.tl.train_prior")
    try:
        config = json.loads(raw["config"])
        preset, n_latent = str(config["preset"]), int(config["denoiser"]["n_latent"])
        return _summary(preset, n_latent, raw["history"], raw["singular_values"])
    except (KeyError, TypeError, ValueError) as error:
        raise PriorFormatError(
            f"adata.uns[{key!r}] is not a stored prior: train it again with dice.tl.train_prior."
        ) from error


def _summary(preset: str, n_latent: int, history: Mapping[str, Any], spectrum: Any) -> Summary:
    curves = {name: np.asarray(values, dtype=np.float64) for name, values in history.items()}
    return Summary(preset, n_latent, curves, np.asarray(spectrum, dtype=np.float64))
