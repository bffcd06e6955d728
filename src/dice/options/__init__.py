"""Settings objects for arguments of the public functions. Each object checks its values.

Pass a settings object as an argument: ``dice.tl.denoise(query, ref, method=dice.Gibbs(n_chains=10))``. The records of
calls in ``.uns`` and the flags of the command line follow from the fields of these objects.
"""

from dice.options._learning import Classifier, LabelsKey, Levels, Mixup, Sets, Training
from dice.options._posterior import Direct, Gaussian, Gibbs, Noise, StudentT
from dice.options._query import FOR_LABELS, Checks, LogDensity, Method, Options, Rho, Shift, check_rho, torch_device

#: Classes of settings objects by their names in the records of calls.
OBJECTS: dict[str, type] = {
    cls.__name__: cls for cls in (Checks, Classifier, Direct, Gaussian, Gibbs, Mixup, Sets, Shift, StudentT, Training)
}

__all__ = ["Checks", "Classifier", "Direct", "Gaussian", "Gibbs", "Levels", "Mixup", "Options", "Sets", "Shift"]
__all__ += ["FOR_LABELS", "OBJECTS", "LabelsKey", "LogDensity", "Method", "Noise", "Rho", "StudentT", "Training"]
__all__ += ["check_rho", "torch_device"]


def __dir__() -> list[str]:
    """Return the settings objects. The other names are for the package itself."""
    return sorted([*OBJECTS, "Levels"])
