"""One file per network. A file that is here is imported, and the class that it defines is registered by its `kind`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from dice._model.denoiser import NETWORKS, Denoiser, Preset

__all__ = ["NETWORKS", "by_preset", "discover"]


def discover() -> None:
    """Import every file of this folder."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def by_preset() -> dict[str, tuple[type[Denoiser], Preset]]:
    """All presets by name, each with its network."""
    return {name: (network, preset) for network in NETWORKS.values() for name, preset in network.presets.items()}


discover()
