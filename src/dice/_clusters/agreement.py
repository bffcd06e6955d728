"""How far two groupings of the same cells agree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def shared_company(groups: NDArray[np.integer], clusters: NDArray[np.integer]) -> NDArray[np.float64]:
    """Share of the other cells of its group that each cell is clustered with; NaN where there are none."""
    table = np.zeros((groups.max() + 1, clusters.max() + 1))
    inside = groups >= 0
    np.add.at(table, (groups[inside], clusters[inside]), 1)
    result = np.full(len(groups), np.nan)
    size = table.sum(1)[groups[inside]]
    together = table[groups[inside], clusters[inside]] - 1
    with np.errstate(invalid="ignore"):
        result[inside] = together / (size - 1)
    return result
