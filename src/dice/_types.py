"""Types of arrays and arguments."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating]
#: One whole number for every cell: its label, cluster or batch; -1 means none.
Codes: TypeAlias = NDArray[np.intp]
#: A yes or no for every cell.
Mask: TypeAlias = NDArray[np.bool_]
#: Cells x genes: a dense array or a scipy CSR matrix (which has no type that can be named).
Chunk: TypeAlias = Any
#: Type of every ``random_state``: None draws a new seed.
Seed: TypeAlias = int | np.random.Generator | np.random.RandomState | None
