"""The prior inside a reference: find the one that fits a query, or write a new one."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data.genes import FEW, by_name, share_of_genes
from dice._data.matrix import Matrix
from dice._data.read import names
from dice._data.store import Prior, find_prior
from dice._data.value_checks import matrix_statistics, refuse_wild
from dice._data.write import Slots, as_plain
from dice._keys import PriorKeys
from dice._model.presets import ROLES
from dice._query.reading import opened
from dice._train.cells import ReferenceCells
from dice._types import Chunk, Mask
from dice.options import Mixup, Options, Training


def fitting_prior(
    adata: AnnData, reference: AnnData | Prior | str | os.PathLike[str], prior_key: str, options: Options
) -> Prior | None:
    """The prior of a reference if the query has its genes; None if a new one must be trained on the cells.

    A prior or a file without cells is used as it is.
    """
    if not isinstance(reference, AnnData):
        return find_prior(reference, key=prior_key)
    keys = PriorKeys(prior_key)
    if keys.uns in names(reference, "uns") and not reference.n_obs:
        return find_prior(reference, key=prior_key)
    if keys.uns not in names(reference, "uns") or keys.split not in names(reference, "obs"):
        return None
    prior = find_prior(reference, key=prior_key)
    share = share_of_genes(adata, prior.genes, options)
    found = f"reference.uns[{keys.uns!r}] holds a prior of {len(prior.genes):,} genes, and the query has {share:.0%}"
    if share < FEW:
        _log.say(f"{found} of them: another one is learned in its place.")
        return None
    _log.say(f"{found} of them: it is used (prior_key='new' would learn another beside it).")
    return prior


def look_ahead(adata: AnnData, reference: AnnData, genes: Mask, options: Options, layer: str | None) -> None:
    """Check both objects before a prior is trained on some `genes` (n_vars,) of the reference.

    `layer` is that of the reference. The calls that use the prior would fail with the same errors, minutes later.
    """
    known = Matrix(reference, layer=layer, genes=by_name(reference, genes), who="reference")
    if options.check.values:  # noqa: PD011 - not pandas
        refuse_wild(known, known.sample())
    known.check_finite()
    learned = reference.var_names.to_numpy(dtype=object)[known.genes]
    _, matrix, _, _ = opened(adata, options, learned, matrix_statistics(known.sample(), known.genes))
    matrix.check_finite()


def statistics(sample: Chunk, cells: ReferenceCells) -> dict[str, float]:
    """Statistics of the reference's matrix, which those of a query are compared with."""
    return {name: x for name, x in matrix_statistics(sample, cells.genes).items() if np.isfinite(x)}


def record(training: Training, mixup: Mixup | None, **arguments: Any) -> dict[str, Any]:
    """The arguments of a call as its prior stores them, without the path of the checkpoint."""
    mixed = {} if mixup is None else {f"mixup_{name}": value for name, value in asdict(mixup).items()}
    settings = asdict(training) | {"checkpoint": None}
    # The behaviour on Ctrl-C does not affect the prior and must not change its checksum.
    del settings["keep_interrupted"]
    return as_plain(arguments | mixed | settings)


def prior_slots(
    adata: AnnData, prior: Prior, latents: NDArray[np.float32], cells: ReferenceCells, keys: PriorKeys
) -> Slots:
    """The prior, its loadings, and the projection and roles of the cells."""
    loadings = np.zeros((adata.n_vars, prior.n_latent), dtype=np.float32)
    loadings[cells.matrix.genes] = prior.projection.loadings
    return Slots(
        obs={keys.split: pd.Categorical.from_codes(cells.roles, ROLES)},
        obsm={keys.projection: latents},
        varm={keys.loadings: loadings},
        uns={keys.uns: prior.to_arrays()},
    )
