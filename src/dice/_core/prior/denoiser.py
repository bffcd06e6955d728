"""The denoiser D(z; s) = E[U | U + s n = z]: all that inference needs to know of a prior.

Latents and noise levels are in scaled units (divided by the prior's ``latent_scale``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn

#: Training noise levels are log-normal and cover what inference can ask for, in scaled units.
LOG_NOISE_MEAN, LOG_NOISE_SD = -0.8, 1.4
CELLS_PER_LEVEL = 8
#: Values beyond this are no denoised latents, whose variance is 1; variances below are none.
LARGEST, SMALLEST = 1e6, 1e-12


class Denoiser(nn.Module, ABC):
    """Posterior mean of a latent seen through isotropic Gaussian noise of standard deviation s."""

    n_latent: int

    @property
    @abstractmethod
    def config(self) -> dict[str, int]:
        """Constructor arguments: with the weights, all that is needed to rebuild the denoiser."""

    @classmethod
    def empty(cls, config: Mapping[str, int]) -> Self:
        """A denoiser without values, to be initialised or loaded.

        Torch's own constructors would draw from the global random state, which is not ours.
        """
        with torch.device("meta"):
            denoiser = cls(**config)
        return denoiser.to_empty(device="cpu")

    def initialize(self, generator: torch.Generator) -> None:
        """Torch's default initialisation, drawn from `generator`."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                module.weight.data.uniform_(-bound, bound, generator=generator)
                module.bias.data.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
                module.reset_parameters()

    @abstractmethod
    def forward(self, z: Tensor, s: Tensor) -> Tensor:
        """Denoise z (n, k) at noise level s, one for all cells () or one each (n,)."""

    def is_sound(self) -> bool:
        """Whether the weights make a denoiser: finite ones may still be nonsense, such as a negative variance.

        Tried at the origin and away from it, over the noise levels that inference asks for.
        """
        with torch.inference_mode():
            points = torch.tensor([0.0, 1.0, -10.0])[:, None].expand(-1, self.n_latent)
            values = [self(points, torch.tensor(level)) for level in (1e-3, 1.0, 10.0)]
            return bool((torch.stack(values).abs() < LARGEST).all())

    def loss(self, clean: Tensor, generator: torch.Generator) -> Tensor:
        """Training loss of a batch of clean latents (n, k); only for denoisers that are trained."""
        raise TypeError(f"{type(self).__name__} is fitted in closed form, not trained.")


def as_column(s: Tensor, like: Tensor) -> Tensor:
    """Noise levels as a (1, 1) or (n, 1) column in the precision and on the device of `like`."""
    return torch.as_tensor(s, dtype=like.dtype, device=like.device).reshape(-1, 1)


class EDMDenoiser(Denoiser):
    """Residual MLP with EDM preconditioning (Karras et al. 2022).

    D = c_skip z + c_out F(c_in z; ln s / 4), with the coefficients for latents of the stored ``variances``. These are
    1, the mean variance of scaled latents. Those of the single latents would make c_skip z the Wiener filter, but the
    network then hardly leaves it: on the paper's Setup 1 it did not learn the two clusters.

    Parameters
    ----------
    n_latent
        Dimension k of the latent space.
    width
        Hidden width of the residual blocks.
    depth
        Number of residual blocks.
    """

    variances: Tensor

    def __init__(self, n_latent: int, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.n_latent = n_latent
        self.width = width
        self.depth = depth
        self.register_buffer("variances", torch.ones(n_latent))
        self.noise_embedding = NoiseEmbedding(width)
        self.inlet = nn.Linear(n_latent, width)
        self.blocks = nn.ModuleList(FilmBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.outlet = nn.Linear(width, n_latent)

    @property
    def config(self) -> dict[str, int]:
        return {"n_latent": self.n_latent, "width": self.width, "depth": self.depth}

    def initialize(self, generator: torch.Generator) -> None:
        """Torch's default, unit variances (the mean of the scaled latents'), and an F that starts at zero."""
        super().initialize(generator)
        nn.init.ones_(self.variances)
        nn.init.zeros_(self.outlet.weight)
        nn.init.zeros_(self.outlet.bias)

    def is_sound(self) -> bool:
        return bool((self.variances > SMALLEST).all()) and super().is_sound()

    def coefficients(self, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """c_skip, c_out and c_in (n or 1, k) at noise levels s (n or 1, 1)."""
        noise = s.square()
        total = self.variances + noise
        c_skip = self.variances / total
        return c_skip, (noise * c_skip).sqrt(), total.rsqrt()

    def forward(self, z: Tensor, s: Tensor) -> Tensor:
        s = as_column(s, z)
        c_skip, c_out, c_in = self.coefficients(s)
        return c_skip * z + c_out * self.network(c_in * z, s)

    def loss(self, clean: Tensor, generator: torch.Generator) -> Tensor:
        """Squared error of D at random noise levels, each weighted to matter equally.

        Cells share levels in groups, because a level's embedding costs as much as a cell; the levels of a
        batch are stratified over their distribution, which steadies the gradient.
        """
        group = CELLS_PER_LEVEL if len(clean) % CELLS_PER_LEVEL == 0 else 1
        clean = clean.reshape(-1, group, self.n_latent)
        n_levels, device = len(clean), clean.device
        jitter = torch.rand(n_levels, generator=generator, device=device)
        # In random order: a small reference is one batch, whose cells always stand in the same places.
        order = torch.randperm(n_levels, generator=generator, device=device)
        quantile = (order + jitter) / n_levels
        normal = torch.special.ndtri(quantile.clamp(1e-6, 1 - 1e-6))
        s = torch.exp(LOG_NOISE_MEAN + LOG_NOISE_SD * normal)[:, None, None]
        noisy = clean + s * torch.randn(clean.shape, generator=generator, device=device)
        c_skip, c_out, c_in = self.coefficients(s)
        # (D - U)^2 = c_out^2 (F - target)^2; dividing by the mean of c_out^2 evens out the levels.
        error = c_out * self.network(c_in * noisy, s) - (clean - c_skip * noisy)
        return (error.square() / c_out.square().mean(-1, keepdim=True)).mean()

    def network(self, z: Tensor, s: Tensor) -> Tensor:
        """The learned part F on preconditioned input z (..., k) at noise levels s (..., 1)."""
        embedding = self.noise_embedding(s.log() / 4)
        hidden = self.inlet(z)
        for block in self.blocks:
            hidden = block(hidden, embedding)
        return self.outlet(self.norm(hidden))


class NoiseEmbedding(nn.Module):
    """Smooth features (n, width) of the logarithmic noise level (n, 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())

    def forward(self, log_noise: Tensor) -> Tensor:
        return self.layers(log_noise)


class FilmBlock(nn.Module):
    """Residual MLP block whose normalised input is scaled and shifted by the noise level (FiLM)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.film = nn.Linear(width, 2 * width)
        self.expand = nn.Linear(width, width)
        self.contract = nn.Linear(width, width)

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        scale, shift = self.film(embedding).chunk(2, dim=-1)
        modulated = self.norm(hidden) * (1 + scale) + shift
        return hidden + self.contract(nn.functional.silu(self.expand(modulated)))
