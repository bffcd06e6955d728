"""Choice of the torch device."""

from __future__ import annotations

import torch

from dice import settings
from dice._errors import InputError


def resolve_device(device: str | torch.device) -> torch.device:
    """``"auto"`` follows ``settings.device``, then CUDA where present, else the CPU."""
    name = settings.device if isinstance(device, str) and device == "auto" else device
    if isinstance(name, str) and name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(name)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"The device {name!r} cannot be used here: pass device='cpu'.") from error
    return chosen
