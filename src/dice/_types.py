"""Types that many modules name."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating]
Codes: TypeAlias = NDArray[np.intp]
#: A dense array or a scipy CSR matrix (which has no type that can be named).
Chunk: TypeAlias = Any
