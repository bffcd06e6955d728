"""What separates a query from the reference as a whole: an offset in the latent space, found under the prior.

An offset of every gene moves all cells of a query by one vector: x = V U + a + e reads out as y = U + delta + noise
with delta = V'a. It is found by alternating "denoise y - delta" and "delta = mean of what denoising took away", at a
noise level that falls: first the means of query and reference meet, then every cell looks for its own kind, so that a
query of three cell types is not stretched over nine. All in units of the prior's latent scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._core.denoiser import Denoiser

Floats = NDArray[np.floating]

#: Noise levels of the alternation. Further down, cells cling to whatever type is near.
LEVELS = (4.0, 2.8, 2.0, 1.4, 1.0)
ROUNDS = 2
#: The level at which a query is judged: cells of any type of the reference are within reach, other places are not.
PULL_LEVEL = 2.0
#: Cells of a batch count as much as so many cells that have the offset of the whole query.
SHRINKAGE = 20.0


@dataclass(frozen=True)
class Offset:
    """Offsets (b, k) of the batches of a query, in PCA units, and the batch of every cell (n,)."""

    values: NDArray[np.float32]
    batches: NDArray[np.intp]

    def of(self, rows: slice) -> NDArray[np.float32]:
        """Offsets (n, k) of the cells at `rows`."""
        return self.values[self.batches[rows]]


def pull(denoiser: Denoiser, z: Tensor, level: float = PULL_LEVEL) -> float:
    """How far the prior pulls cells, mean of ||D(z; s) - z||^2 / (k s^2)."""
    moved = denoiser(z, _level(z, level)) - z
    return float(moved.square().mean() / level**2)


def expected_pull(variances: Floats, level: float = PULL_LEVEL) -> float:
    """The pull on cells of the reference, were they Gaussian with the latents' `variances` (k,)."""
    v, s2 = np.asarray(variances, dtype=np.float64), level**2
    return float(np.mean(v * s2 / (v + s2) ** 2))


def variety(denoiser: Denoiser, z: Tensor) -> float:
    """Variance of what cells are denoised to, mean over latents: hardly any if all are of one kind."""
    return float(denoiser(z, _level(z, LEVELS[-1])).var(0, correction=0).mean())


def expected_variety(variances: Floats) -> float:
    """The variety of cells of the reference, were they Gaussian with the latents' `variances` (k,)."""
    v = np.asarray(variances, dtype=np.float64)
    return float(np.mean(v**3 / (v + LEVELS[-1] ** 2) ** 2))


def fit_offset(denoiser: Denoiser, z: Tensor, batches: NDArray[np.intp]) -> Tensor:
    """Offsets (b, k) of the batches of cells z (n, k) under the prior, by the alternation."""
    offsets = torch.zeros((int(batches.max(initial=0)) + 1, z.shape[1]), dtype=z.dtype, device=z.device)
    batch = torch.as_tensor(batches, device=z.device)
    for level in LEVELS:
        for _ in range(ROUNDS):
            taken_away = z - denoiser(z - offsets[batch], _level(z, level))
            offsets = shrunken_means(taken_away, batch, len(offsets))
    return offsets


def shrunken_means(values: Tensor, batch: Tensor, n_batches: int) -> Tensor:
    """Mean (b, k) of every batch, pulled to the mean of all by its number of cells, and that towards zero."""
    n = torch.bincount(batch, minlength=n_batches)[:, None].to(values.dtype)
    sums = torch.zeros((n_batches, values.shape[1]), dtype=values.dtype, device=values.device)
    sums.index_add_(0, batch, values)
    whole = sums.sum(0) / (n.sum() + SHRINKAGE)
    if n_batches == 1:
        return whole[None]
    return (sums + SHRINKAGE * whole) / (n + SHRINKAGE)


def _level(z: Tensor, level: float) -> Tensor:
    return torch.tensor(level, dtype=z.dtype, device=z.device)
