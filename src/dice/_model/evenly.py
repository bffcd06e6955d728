"""Some of many, evenly spread."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)


def evenly(rows: NDArray[Number], most: int) -> NDArray[Number]:
    """At most so many rows of an array, from the first to the last."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.intp)]
