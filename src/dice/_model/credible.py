"""Credible regions from posterior samples, of any shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from dice._errors import InputError


@dataclass(frozen=True)
class CredibleRegion:
    """The points that are as near to the posterior samples of a cell as most of the samples are.

    Half of the samples give the region its shape, which may have several parts; the other half set its radius. If the
    samples come from the true posterior, the truth is one more draw, and the region covers it with probability `level`
    or slightly more. For counts the samples are Gaussian with a learned variance, and coverage is approximate
    (docs/posterior.md).
    """

    shape: NDArray[np.float32]
    radius: float
    level: float
    n_neighbors: int

    @classmethod
    def from_samples(cls, samples: NDArray[np.floating], level: float) -> CredibleRegion:
        """The region of one cell from its posterior samples (S, k)."""
        if not 0 < level < 1:
            raise InputError(f"level={level} is not between 0 and 1.")
        shape, rest = samples[::2], samples[1::2]
        rank = math.ceil((len(rest) + 1) * level)
        if rank > len(rest):
            needed = 2 * math.ceil(level / (1 - level) - 1e-9)
            raise InputError(f"{len(samples)} samples are too few for level={level}: draw at least {needed}.")
        n_neighbors = max(1, round(math.sqrt(len(shape)) / 2))
        radius = np.sort(_distance(shape, rest, n_neighbors))[rank - 1]
        return cls(np.asarray(shape), float(radius), level, n_neighbors)

    def contains(self, points: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Whether each of `points` (m, k) lies in the region."""
        return _distance(self.shape, np.atleast_2d(points), self.n_neighbors) <= self.radius


def _distance(shape: NDArray[np.floating], points: NDArray[np.floating], n_neighbors: int) -> NDArray[np.floating]:
    """Distance of each point to its n-th nearest sample."""
    distances, _ = KDTree(shape).query(points, k=[n_neighbors])
    return np.asarray(distances)[:, 0]
