"""Names for arrays that many modules pass around."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating]
#: Whole numbers that stand for labels, batches or cells.
Codes: TypeAlias = NDArray[np.intp]
#: A yes or no for every cell.
Mask: TypeAlias = NDArray[np.bool_]
#: A dense array or a scipy CSR matrix (which has no type that can be named).
Chunk: TypeAlias = Any
