"""Checks of arguments that are plain numbers and choices: one sentence with what to pass instead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dice._errors import InputError

#: Default rho in units of the prior's latent scale.
DEFAULT_RHO = 0.5


def resolve_rho(rho: float | Sequence[float] | None, latent_scale: float) -> float | list[float]:
    """rho as a number or a list of them; None is half of the latent scale."""
    if rho is None:
        return DEFAULT_RHO * latent_scale
    values = np.asarray(rho, dtype=np.float64)
    if values.ndim > 1 or not values.size or not np.isfinite(values).all() or (values < 0).any():
        raise InputError(f"rho={rho} is not a number of at least 0, a (start, end) pair or a sequence of them.")
    return float(values) if values.ndim == 0 else values.tolist()


def check_deconvolve(level: float, reference_noise: float) -> None:
    """Deconvolution removes the reference's noise from the query's, which must be larger."""
    if level <= reference_noise:
        raise InputError(
            f"deconvolve=True needs more noise than the reference's own ({reference_noise:.3g}), but noise and rho "
            f"make {level:.3g}: pass rho={reference_noise:.2g} or more."
        )


def whole_number(name: str, value: int, *, least: int = 1) -> int:
    """A whole number that is not too small."""
    if value != int(value) or value < least:
        raise InputError(f"{name}={value} is not a whole number of at least {least}.")
    return int(value)


def choice(name: str, value: str, options: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in options:
        raise InputError(f"There is no {name} {value!r}: choose one of {list(options)}.")
    return value
