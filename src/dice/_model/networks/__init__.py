"""The denoiser D(z; depth, s): the interface of a network for training, storage and inference.

D is the posterior mean E[U | z] of clean latents U. The noisy latents z carry Gaussian noise of standard deviation s
and, if the network reads depth, also the noise of counts at the depth of the cell. Latents and noise levels are in
scaled units (divided by the prior's ``latent_scale``). Depths are the log depths of :mod:`dice._model.counts`.

To add a network, add one file with a subclass of :class:`Denoiser` to this folder. All files of the folder are
imported, and each class is registered by its `kind`. No other file changes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from dice._model.sampler import CellNoise, probe_variance, sample_sde

#: Largest accepted magnitude of denoised latents (their variance is about 1), and smallest accepted variance.
LARGEST_VALUE, SMALLEST_VARIANCE = 1e6, 1e-12
#: Networks by their name in stored priors; subclasses of `Denoiser` register themselves.
NETWORKS: dict[str, type["Denoiser"]] = {}


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training of a network.

    Training stops after ``patience`` evaluations without a better held-out loss. With ``patience`` 0, training runs to
    the end and keeps the last weights, as in the paper. With ``ema_decay`` 0, weights are not averaged.
    """

    max_steps: int = 1500
    batch_size: int = 512
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    beta2: float = 0.99
    warmup: int = 50
    clip_norm: float = 1.0
    ema_decay: float = 0.999
    evaluate_every: int = 50
    patience: int = 8


@dataclass(frozen=True)
class Preset:
    """The size of a network and its training.

    Without `training`, the network's ``fit`` finds the weights in closed form. ``epochs`` is a number of passes over
    the data, as in the paper, and replaces ``training.max_steps``. With ``mixup``, the network may be trained on
    mixtures of cells. With ``counts``, the network learns the noise of counts if the reference consists of counts.
    Otherwise the network assumes Gaussian noise.
    """

    training: TrainingConfig | None
    size: Mapping[str, int] = field(default_factory=dict)
    epochs: int | None = None
    mixup: bool = False
    counts: bool = False


class Denoiser(nn.Module, ABC):
    """Base class of networks: the posterior of latents under the noise of counts and isotropic Gaussian noise.

    The arguments of a constructor must be whole numbers.
    """

    #: Name in stored priors.
    kind: ClassVar[str]
    #: Largest value of each constructor argument other than `n_latent`. The smallest value is 1.
    bounds: ClassVar[Mapping[str, int]]

    n_latent: int
    #: Presets of ``tl.train_prior`` that use this network.
    presets: ClassVar[Mapping[str, Preset]] = {}
    #: Smallest training batch: 2 if the network normalises over the cells of a batch.
    least_batch: ClassVar[int] = 1
    #: Largest noise level that :meth:`draw` can start from.
    largest_noise: ClassVar[float] = math.inf

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            NETWORKS[cls.kind] = cls

    @property
    def config(self) -> dict[str, int]:
        """Arguments of the constructor. The network can be rebuilt from these arguments and its weights."""
        return {name: getattr(self, name) for name in ("n_latent", *self.bounds)}

    @classmethod
    def empty(cls, config: Mapping[str, int]) -> Self:
        """Return a network without weights, to be initialised or loaded.

        Torch's own constructors would draw weights from the global random state, which belongs to the user.
        """
        with torch.device("meta"):
            network = cls(**config)
        return network.to_empty(device="cpu")

    def initialize(self, generator: torch.Generator) -> None:
        """Draw torch's default initial weights from `generator`."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                module.weight.data.uniform_(-bound, bound, generator=generator)
                module.bias.data.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
                module.reset_parameters()

    @abstractmethod
    def forward(self, z: Tensor, s: Tensor, log_depth: Tensor | None = None) -> Tensor:
        """Return the posterior mean for z (n, k) at the noise level s, of shape () for all cells or (n,) for each.

        `log_depth` (n,) is the log depth of the cells. Without it, z has Gaussian noise only.
        """

    @property
    def counted(self) -> bool:
        """Whether the network has learned the noise of counts and reads depth."""
        return False

    @property
    def typical(self) -> float:
        """Log depth of a typical cell of the reference; NaN if the network does not read depth."""
        return math.nan

    @property
    def slope(self) -> Tensor:
        """Derivative (k,) of every output by its own latent, at typical depth and s = 0."""
        return torch.ones(self.n_latent)

    def is_sound(self) -> bool:
        """Return whether the weights give finite outputs of a plausible size.

        The network is evaluated at the origin and away from it, at the noise levels of inference.
        """
        with torch.inference_mode():
            latents = torch.tensor([0.0, 1.0, -10.0])[:, None].expand(-1, self.n_latent)
            return bool((torch.stack(self.outputs(latents)).abs() < LARGEST_VALUE).all())

    def outputs(self, latents: Tensor) -> list[Tensor]:
        """Return the outputs (n, k) that :meth:`is_sound` checks, for latents (n, k) at several noise levels."""
        return [self(latents, torch.tensor(level)) for level in (1e-3, 1.0, 10.0)]

    def variance(self, z: Tensor, s: Tensor, noise: CellNoise, log_depth: Tensor | None = None) -> Tensor:
        """Return the posterior variance (n,) of every cell, averaged over latents.

        By default, the variance is estimated from random probes of the network's derivative.
        """
        return probe_variance(self, z, s, noise)

    def posterior_sample(self, z: Tensor, s: Tensor, noise: CellNoise, log_depth: Tensor | None = None) -> Tensor:
        """Draw once from the posterior of every cell (n, k). The default takes a few steps of reverse diffusion."""
        return sample_sde(self, z, s, noise)

    def draw(self, z: Tensor, s: Tensor, noise: CellNoise) -> Tensor:
        """Take the prior step of Algorithm 1: draw (n, k) from p(U | z), with the same noise level s for all cells.

        The default is the few-step sampler.
        """
        return self.posterior_sample(z, s, noise)

    def start(self, train: Tensor, held_out: Tensor | None, typical: float | None) -> None:
        """Fit the parts that have a closed form. `typical` is the typical log depth, None without counts."""

    def loss(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Return the training loss of a batch of rows or latents. Networks with a closed form have no loss."""
        raise TypeError(f"{type(self).__name__} is fitted in closed form, not trained.")

    def error(self, rows: Tensor, s: Tensor, noise: Tensor) -> Tensor:
        """Return the mean squared error () on rows or latents, with Gaussian noise s * `noise` (n, k) added."""
        return (self(rows + s * noise, s) - rows).square().mean()

    @classmethod
    def fit(cls, train: Tensor, held_out: Tensor | None, seed: int) -> tuple[Self, dict[str, list[float]]]:
        """Fit a denoiser to clean latents (n, k) in closed form, and return it with its history."""
        raise TypeError(f"{cls.__name__} is trained, not fitted in closed form.")


def discover() -> None:
    """Import every file of this folder."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def by_preset() -> dict[str, tuple[type[Denoiser], Preset]]:
    """Return all presets by name, each with its network."""
    return {name: (network, preset) for network in NETWORKS.values() for name, preset in network.presets.items()}


discover()
