"""Diffusion Induced Cell Embeddings: a clean reference cleans up a noisy query.

Importing this package is cheap: torch, scanpy and anndata load with the first call that needs them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dice import settings
from dice._errors import DiceError, DiceWarning

if TYPE_CHECKING:
    from dice import datasets, metrics, pl, pp, tl
    from dice._anndata.store import Prior
    from dice._reference.options import Mixup, Training

__version__ = version("scdice")
__all__ = [
    "DiceError",
    "DiceWarning",
    "Mixup",
    "Prior",
    "Training",
    "datasets",
    "metrics",
    "pl",
    "pp",
    "settings",
    "tl",
]

_LAZY_MODULES = frozenset({"datasets", "metrics", "pl", "pp", "tl"})


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return import_module(f"dice.{name}")
    if name in {"Mixup", "Training"}:
        return getattr(import_module("dice._reference.options"), name)
    if name == "Prior":
        return import_module("dice._anndata.store").Prior
    raise AttributeError(f"module 'dice' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
