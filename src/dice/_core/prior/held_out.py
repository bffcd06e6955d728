"""The loss that training stops on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dice._core.prior.denoiser import Denoiser


class HeldOut:
    """Denoising loss on held-out cells in the noise band that inference uses.

    Relative to the best linear denoiser (the Wiener filter): 1 is what PCA alone could do, less is what the
    prior adds. Noise is drawn once, so that evaluations differ by the weights alone.
    """

    def __init__(self, latents: Tensor, variances: Tensor, band: tuple[float, float], seed: int):
        generator = torch.Generator(latents.device).manual_seed(seed)
        levels = np.geomspace(*band, num=6)
        self.clean = latents
        self.levels = torch.as_tensor(levels, dtype=latents.dtype, device=latents.device)
        self.noisy = [
            latents + s * torch.randn(latents.shape, generator=generator, device=latents.device) for s in self.levels
        ]
        self.wiener = [(variances * s**2 / (variances + s**2)).sum() for s in self.levels]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the loss depends on, besides the denoiser."""
        return self.clean, self.levels

    @torch.no_grad()
    def loss(self, denoiser: Denoiser) -> float:
        ratios = [
            (denoiser(noisy, s) - self.clean).square().sum(1).mean() / wiener
            for noisy, s, wiener in zip(self.noisy, self.levels, self.wiener, strict=True)
        ]
        return float(torch.stack(ratios).mean())
