"""Diffusion Induced Cell Embeddings: a clean reference cleans up a noisy query.

Importing this package is cheap: torch, scanpy and anndata load with the first call that needs them.
"""

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

#: Modules that define these two names. The other public names are modules, or settings in ``dice.options``.
_HOMES = {"Prior": "dice._data.store", "read_lazy": "dice._data.files"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dice' has no attribute {name!r}")
    if name.islower() and name not in _HOMES:
        return import_module(f"dice.{name}")
    return getattr(import_module(_HOMES.get(name, "dice.options")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
