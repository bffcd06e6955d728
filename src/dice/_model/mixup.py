"""Mixup: convex mixtures of a cell and others of its label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class LabelMixup:
    """Replace a cell by a Dirichlet mixture of itself and cells of its label.

    With ``Dirichlet(1)`` weights over 5 cells a mixture has one third of its label's variance, so that
    the learned prior is sharper than the cells it was trained on.

    Parameters
    ----------
    labels
        Label code (n,) of every cell, -1 for cells that are never mixed (missing labels).
    points
        Number of cells in a mixture, the first one included.
    probability
        Share of training cells that are replaced by a mixture.
    concentration
        Parameter of the symmetric Dirichlet distribution.
    """

    labels: NDArray[np.integer]
    points: int = 5
    probability: float = 0.9
    concentration: float = 1.0


class BatchSampler:
    """Batches of latents (n, k) on their device, cells drawn with replacement; all cells if the batch is larger."""

    def __init__(self, latents: Tensor) -> None:
        self.latents = latents

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """One batch (size, k)."""
        return self.latents[self._cells(size, generator)]

    def _cells(self, size: int, generator: torch.Generator) -> Tensor:
        device, n = self.latents.device, len(self.latents)
        if size >= n:
            return torch.arange(n, device=device)
        return torch.randint(n, (size,), generator=generator, device=device)


class MixingSampler(BatchSampler):
    """Batches whose cells are mixed with others of their label."""

    def __init__(self, latents: Tensor, mixup: LabelMixup) -> None:
        super().__init__(latents)
        self.mixup = mixup
        # Cells of a label stand side by side in `order`, so that another one is one random offset away.
        order = np.argsort(mixup.labels, kind="stable")
        _, codes, counts = np.unique(mixup.labels, return_inverse=True, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        arrays = order, starts[codes], counts[codes], mixup.labels >= 0
        self.order, self.starts, self.counts, self.mixable = (torch.as_tensor(x).to(latents.device) for x in arrays)

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """One batch (size, k) of mixtures and, with the complementary probability, cells as they are."""
        device = self.latents.device
        cells = self._cells(size, generator)
        batch, n = self.latents[cells], len(cells)
        offsets = torch.rand((n, self.mixup.points - 1), generator=generator, device=device)
        others = self.order[self.starts[cells, None] + (offsets * self.counts[cells, None]).long()]
        parts = torch.cat([batch[:, None], self.latents[others]], dim=1)
        mixed = torch.einsum("np,npk->nk", self._weights(n, generator), parts)
        coin = torch.rand(n, generator=generator, device=device) < self.mixup.probability
        return torch.where((coin & self.mixable[cells])[:, None], mixed, batch)

    def _weights(self, size: int, generator: torch.Generator) -> Tensor:
        """Symmetric Dirichlet weights (size, points), as normalised Gamma variables."""
        shape, device = (size, self.mixup.points), self.latents.device
        if self.mixup.concentration == 1.0:
            gamma = -torch.log1p(-torch.rand(shape, generator=generator, device=device))
            return gamma / gamma.sum(1, keepdim=True).clamp_min(1e-30)
        # Torch has no Gamma variables from a generator of one's own; numpy's are seeded by it.
        seed = torch.randint(2**62, (), generator=generator, device=device)
        logs = _log_gamma(self.mixup.concentration, shape, np.random.default_rng(int(seed)))
        return torch.softmax(torch.as_tensor(logs, device=device), dim=1).to(self.latents.dtype)


def _log_gamma(concentration: float, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Logarithms of Gamma variables, by G(c) = G(c + 1) U^(1/c): for small c the variables themselves underflow."""
    uniform = 1 - rng.random(shape)
    return np.log(rng.gamma(concentration + 1, size=shape)) + np.log(uniform) / concentration
