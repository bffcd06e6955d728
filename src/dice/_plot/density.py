"""Highest-density regions of points in the plane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dice._types import Floats

_GRID = 150


@dataclass(frozen=True)
class Region:
    """A density on a grid, and the height above which it holds the wanted share of the points."""

    x: Floats
    y: Floats
    density: Floats
    threshold: float


def highest_density_region(points: Floats, level: float, *, min_width: float) -> Region:
    """Smallest region that holds a share `level` of a sample, by Hyndman's quantile of its density.

    The kernel is as wide as a typical neighbourhood of sqrt(n) points, so that two distant modes
    stay two: a width taken from the overall spread would join them.

    Parameters
    ----------
    points
        Sample (n, 2).
    level
        Share of the sample inside, between 0 and 1.
    min_width
        Smallest width of the kernel, for samples that coincide.
    """
    sample = points.astype(np.float64)
    width = max(_typical_spacing(sample), min_width)
    low, high = sample.min(0) - 4 * width, sample.max(0) + 4 * width
    x, y = (np.linspace(low[i], high[i], _GRID) for i in (0, 1))
    # A Gaussian kernel is a product over the axes, hence so is the sum over the sample.
    kernel_x = _kernel(x[:, None] - sample[:, 0], width)
    kernel_y = _kernel(y[:, None] - sample[:, 1], width)
    inside = _kernel(_distances(sample), width).mean(1)
    return Region(
        x=x,
        y=y,
        density=kernel_y @ kernel_x.T / len(sample),
        threshold=float(np.quantile(inside, 1 - level)),
    )


def _typical_spacing(sample: Floats) -> float:
    """Median distance to the sqrt(n)-th neighbour."""
    rank = min(int(np.ceil(np.sqrt(len(sample)))), len(sample) - 1)
    return float(np.median(np.sort(_distances(sample), axis=1)[:, rank]))


def _distances(sample: Floats) -> Floats:
    return np.asarray(np.linalg.norm(sample[:, None] - sample, axis=-1))


def _kernel(distance: Floats, width: float) -> Floats:
    return np.asarray(np.exp(-0.5 * (distance / width) ** 2))
