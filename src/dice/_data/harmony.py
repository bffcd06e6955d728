"""Harmony's correction of batches, by harmonypy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import torch

from dice._arguments import short_seed
from dice._errors import InputError
from dice._types import Floats


def harmony(latents: Floats, batches: pd.Categorical, random_state: int) -> Floats:
    """Latents (n, k) after Harmony, whatever way around this version of harmonypy returns them."""
    from harmonypy import run_harmony

    n_cells, n_comps = latents.shape
    # harmonypy's own default, which rounds to none for fewer than 15 cells.
    n_clusters = max(1, min(round(n_cells / 30), 100))
    sigma = np.full(n_clusters, 0.1)  # the default; old versions need one for each cluster
    labels = pd.DataFrame({"batch": np.asarray(batches, dtype=object).astype(str)})
    with _global_random_state_kept():
        result = run_harmony(
            latents.astype(np.float64), labels, "batch",
            nclust=n_clusters, sigma=sigma, random_state=short_seed(random_state, 31), verbose=False,
        )  # fmt: skip
    corrected = np.asarray(result.Z_corr)
    # There are fewer components than cells, so that the two cannot be taken for each other.
    if corrected.shape == (n_comps, n_cells):
        corrected = corrected.T
    if corrected.shape != (n_cells, n_comps) or not np.isfinite(corrected).all():
        raise InputError(
            f"harmonypy failed: it returned shape {corrected.shape} for {n_cells} cells and {n_comps} components, or "
            "values that are not finite; try a smaller n_comps."
        )
    return corrected


@contextmanager
def _global_random_state_kept() -> Iterator[None]:
    """Undo what harmonypy does to global random states: old versions seed numpy's, some torch's."""
    state = np.random.get_state()  # noqa: NPY002 (the legacy state is what is being protected)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
