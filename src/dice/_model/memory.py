"""Chunks of cells that fit the memory of the device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dice._errors import InputError
from dice._model.direct import Posterior

#: What torch raises where the memory of a device is full.
OutOfMemory = torch.cuda.OutOfMemoryError


class Halving:
    """Computes a chunk as a whole where it fits, else in halves; what did not fit once is not tried again.

    A cell's result does not depend on the others of its chunk, so that the halves add up to the whole.
    """

    def __init__(self) -> None:
        #: Most cells that are tried at once; None as long as everything fitted.
        self.limit: int | None = None

    def __call__(self, compute: Callable[[slice], Posterior], n_cells: int) -> Posterior:
        """``compute(slice(0, n_cells))``, in as many parts as needed."""
        parts: list[Posterior] = []
        start = 0
        while start < n_cells or not parts:
            stop = min(start + (self.limit or n_cells), n_cells)
            part = self._attempt(compute, slice(start, stop))
            if part is not None:
                parts.append(part)
                start = stop
        return Posterior.joined(parts)

    def _attempt(self, compute: Callable[[slice], Posterior], rows: slice) -> Posterior | None:
        try:
            return compute(rows)
        except OutOfMemory as error:
            if rows.stop - rows.start < 2:
                raise InputError(
                    "The memory of the device is too small for a single cell: set dice.settings.device = 'cpu'."
                ) from error
        # Only here, where the error no longer holds on to the tensors of the failed attempt.
        self.limit = (rows.stop - rows.start) // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return None
