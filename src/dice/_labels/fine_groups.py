"""A fine partition of a query, for votes and for novelty: groups of about 25 cells, hardly ever of two types."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from dice._types import Codes, Floats

#: Cells of a group, most groups, and cells that the groups are learned from.
GROUP_CELLS, MOST_GROUPS, LEARNED_CELLS = 25, 400, 10_000


def fine_groups(latents: Floats, order: Codes) -> Codes:
    """Groups (n,) of cells with latents (n, k) by k-means; -1 for cells that are not in `order`.

    `order` are positions of the cells to group. The first ones teach, so that it should be random and belong to the
    cells rather than to the file.
    """
    codes = np.full(len(latents), -1, dtype=np.intp)
    n_groups = int(np.clip(len(order) // GROUP_CELLS, 1, MOST_GROUPS))
    if not len(order):
        return codes
    learned = latents[order[:LEARNED_CELLS]].astype(np.float32)
    model = KMeans(min(n_groups, len(np.unique(learned, axis=0))), n_init=1, random_state=0).fit(learned)
    codes[order] = model.predict(np.ascontiguousarray(latents[order], dtype=np.float32))
    return codes
