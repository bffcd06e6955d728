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
    from dice import datasets, metrics, pl, pp, priors, tl
    from dice._data.files import read_lazy
    from dice._data.store import Prior
    from dice.options import Checks, Classifier, Direct, Gaussian, Gibbs, Levels, Mixup, Sets, Shift, StudentT, Training

__version__ = version("scdice")
__all__ = [
    "Checks", "Classifier", "DiceError", "DiceWarning", "Direct", "Gaussian", "Gibbs", "Levels", "Mixup", "Prior",
    "Sets", "Shift", "StudentT", "Training", "datasets", "metrics", "pl", "pp", "priors", "read_lazy", "settings", "tl",
]  # fmt: skip

_LAZY_MODULES = frozenset({"datasets", "metrics", "pl", "pp", "priors", "tl"})
_OPTIONS = (
    "Checks", "Classifier", "Direct", "Gaussian", "Gibbs", "Levels", "Mixup", "Sets", "Shift", "StudentT", "Training",
)  # fmt: skip
_LAZY_NAMES = {"Prior": "dice._data.store", "read_lazy": "dice._data.files"}
_LAZY_NAMES |= dict.fromkeys(_OPTIONS, "dice.options")


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return import_module(f"dice.{name}")
    if name in _LAZY_NAMES:
        return getattr(import_module(_LAZY_NAMES[name]), name)
    raise AttributeError(f"module 'dice' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
