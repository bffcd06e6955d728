"""Which cells of a very large reference the network learns from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dice import _log
from dice._core.prior.presets import ROLES

#: Cells of a label that are kept where it has them: rare types are what a large reference is for.
FEWEST = 200


def limit_roles(
    roles: NDArray[np.int8], labels: NDArray[np.integer] | None, max_cells: int, seed: int
) -> NDArray[np.int8]:
    """Roles (n,) with -1 for random cells beyond `max_cells`; they serve the PCA, but not the network.

    With label codes (n,), every label keeps the same share of its cells, and at least `FEWEST` of them.
    """
    trained = roles < ROLES.index("calibration")
    share = max_cells / max(trained.sum(), 1)
    if share >= 1:
        return roles
    groups = np.zeros(len(roles), dtype=np.intp) if labels is None else np.asarray(labels, dtype=np.intp)
    rng, limited = np.random.default_rng([seed, 1]), roles.copy()
    for role in np.unique(roles[trained]):
        for group in np.unique(groups[roles == role]):
            cells = rng.permutation(np.flatnonzero((roles == role) & (groups == group)))
            kept = round(share * len(cells)) if labels is None else max(round(share * len(cells)), FEWEST)
            limited[cells[kept:]] = -1
    kind = "uniform" if labels is None else "label-stratified"
    n_kept = int(((limited >= 0) & trained).sum())
    _log.info(f"The network learns from a {kind} subsample of {n_kept} of {trained.sum()} cells.")
    return limited
