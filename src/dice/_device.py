"""Choice of the torch device."""

from __future__ import annotations

import torch

from dice import settings
from dice._errors import InputError


def resolve_device(device: str | torch.device) -> torch.device:
    """``"auto"`` follows ``settings.device``, then CUDA where present, else the CPU."""
    name = settings.device if device == "auto" else device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(name)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"The device {name!r} cannot be used here: pass device='cpu'.") from error
    return chosen
