"""Same-group mixup: convex mixtures of cells that share a label or a cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Mixup:
    """Replace a cell by a Dirichlet mixture of itself and others of its group.

    With ``Dirichlet(1)`` weights over 5 points a mixture has one third of its group's variance, so that
    the learned prior is sharper than the cells it was trained on.

    Parameters
    ----------
    groups
        Group of every cell, or -1 for cells that are never mixed (missing labels).
    n_points
        Number of cells in a mixture, the first one included.
    probability
        Share of training cells that are replaced by a mixture.
    concentration
        Parameter of the symmetric Dirichlet distribution.
    """

    groups: NDArray[np.integer]
    n_points: int = 5
    probability: float = 0.9
    concentration: float = 1.0

    def sampler(self, latents: Tensor) -> BatchSampler:
        """Draw batches of `latents` (n, k), on their device."""
        # Cells of a group stand side by side in `order`, so that a mate is one random offset away.
        order = np.argsort(self.groups, kind="stable")
        _, codes, counts = np.unique(self.groups, return_inverse=True, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        to = {"device": latents.device}
        return BatchSampler(
            latents,
            self,
            torch.as_tensor(order, **to),
            torch.as_tensor(starts[codes], **to),
            torch.as_tensor(counts[codes], **to),
            torch.as_tensor(self.groups >= 0, **to),
        )


@dataclass(frozen=True)
class BatchSampler:
    """Batches of latents, mixed within groups where a mixup is given."""

    latents: Tensor
    mixup: Mixup | None = None
    order: Tensor | None = None
    starts: Tensor | None = None
    counts: Tensor | None = None
    mixable: Tensor | None = None

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """One batch (size, k), cells drawn with replacement; or all cells if there are fewer."""
        device, size = self.latents.device, min(size, len(self.latents))
        cells = torch.randint(len(self.latents), (size,), generator=generator, device=device)
        if size == len(self.latents):
            cells = torch.arange(size, device=device)
        batch = self.latents[cells]
        if self.mixup is None:
            return batch
        shape = (size, self.mixup.n_points - 1)
        offsets = torch.rand(shape, generator=generator, device=device) * self.counts[cells, None]
        mates = self.order[self.starts[cells, None] + offsets.long()]
        points = torch.cat([batch[:, None], self.latents[mates]], dim=1)
        mixed = torch.einsum("np,npk->nk", self._weights(size, generator), points)
        coin = torch.rand(size, generator=generator, device=device) < self.mixup.probability
        return torch.where((coin & self.mixable[cells])[:, None], mixed, batch)

    def _weights(self, size: int, generator: torch.Generator) -> Tensor:
        """Symmetric Dirichlet weights (size, n_points), as normalised Gamma variables."""
        shape = (size, self.mixup.n_points)
        device = self.latents.device
        if self.mixup.concentration == 1.0:
            gamma = -torch.log1p(-torch.rand(shape, generator=generator, device=device))
        else:
            # Torch has no Gamma variables from a generator of one's own; numpy's are seeded by it.
            seed = torch.randint(2**62, (), generator=generator, device=device)
            draws = np.random.default_rng(int(seed)).gamma(self.mixup.concentration, size=shape)
            gamma = torch.as_tensor(draws, dtype=self.latents.dtype, device=device) + 1e-30
        return gamma / gamma.sum(1, keepdim=True)
