"""What every network of a prior has in common: it can be rebuilt from plain numbers, and made without global state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import torch
from torch import nn


class Network(nn.Module):
    """A network whose constructor takes whole numbers only."""

    #: Name in stored priors.
    kind: ClassVar[str]
    #: Largest value of each constructor argument but `n_latent`; all are whole numbers from 1 on.
    bounds: ClassVar[Mapping[str, int]]

    n_latent: int

    @property
    def config(self) -> dict[str, int]:
        """Constructor arguments: with the weights, all that is needed to rebuild the network."""
        return {name: getattr(self, name) for name in ("n_latent", *self.bounds)}

    @classmethod
    def empty(cls, config: Mapping[str, int]) -> Self:
        """A network without values, to be initialised or loaded.

        Torch's own constructors would draw from the global random state, which is not ours.
        """
        with torch.device("meta"):
            network = cls(**config)
        return network.to_empty(device="cpu")

    def initialize(self, generator: torch.Generator) -> None:
        """Torch's default initialisation, drawn from `generator`."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                module.weight.data.uniform_(-bound, bound, generator=generator)
                module.bias.data.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
                module.reset_parameters()
