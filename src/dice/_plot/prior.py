"""What plots need to know of a prior, from wherever it is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from anndata import AnnData

from dice._data import read
from dice._errors import PriorFormatError
from dice._types import Floats

if TYPE_CHECKING:
    from dice._data.store import Prior


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
    if isinstance(source, AnnData):
        raw = read.record(source, key, what="prior", step="dice.tl.train_prior")
    else:
        from dice._data.store import find_prior

        raw = find_prior(source, key=key).to_arrays()
    try:
        config = json.loads(raw["config"])
        return Summary(
            preset=str(config["preset"]),
            n_latent=int(config["denoiser"]["n_latent"]),
            history={name: np.asarray(values, dtype=np.float64) for name, values in raw["history"].items()},
            singular_values=np.asarray(raw["singular_values"], dtype=np.float64),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PriorFormatError(
            f"adata.uns[{key!r}] is not a stored prior: train it again with dice.tl.train_prior."
        ) from error
