"""Remove differences between batches from latents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dice._arguments import short_seed
from dice._errors import InputError
from dice._types import Floats


def harmony(latents: Floats, batches: NDArray[np.str_], random_state: int) -> Floats:
    """Return latents (n, k) of cells of several `batches` (n,) after Harmony."""
    from harmonypy import run_harmony

    # The default of harmonypy rounds to zero for fewer than 15 cells.
    n_clusters = max(1, min(round(len(latents) / 30), 100))
    options = {"nclust": n_clusters, "random_state": short_seed(random_state, 31), "verbose": False}
    found = run_harmony(latents.astype(np.float64), {"batch": batches}, "batch", **options)
    corrected = np.asarray(found.Z_corr)
    if not np.isfinite(corrected).all():
        raise InputError("Harmony returned values that are not finite: pass a smaller `n_comps`.")
    return corrected
