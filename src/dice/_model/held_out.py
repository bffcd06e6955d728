"""The loss that training stops on."""

from __future__ import annotations

import torch
from torch import Tensor

from dice._model.denoiser import Denoiser


class HeldOut:
    """Denoising error on rows of held-out cells at the noise levels that inference uses.

    Relative to the best linear denoiser: 1 is what PCA alone could do, less is what the network adds. Noise is drawn
    once, so that evaluations differ by the weights alone.
    """

    def __init__(self, rows: Tensor, levels: Tensor, linear: Tensor | None, denoiser: Denoiser, seed: int) -> None:
        """`linear` has the errors of the linear denoiser (levels,); None asks a `denoiser` that starts as one."""
        self.rows, self.levels = rows, levels
        generator = torch.Generator(rows.device).manual_seed(seed)
        shape = (len(levels), len(rows), denoiser.n_latent)
        self.noise = torch.randn(shape, generator=generator, device=rows.device)
        self.linear = (self.errors(denoiser) if linear is None else linear).clamp_min(1e-12)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the loss depends on, besides the denoiser."""
        return self.rows, self.levels

    @torch.no_grad()
    def errors(self, denoiser: Denoiser) -> Tensor:
        """Mean squared error at every level."""
        pairs = zip(self.levels, self.noise, strict=True)
        return torch.stack([denoiser.error(self.rows, level, noise) for level, noise in pairs])

    def loss(self, denoiser: Denoiser) -> float:
        return float((self.errors(denoiser) / self.linear).mean())
