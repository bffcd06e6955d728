"""Package-wide settings: plain module attributes, read when a call starts."""

from __future__ import annotations

#: Device used where a call says ``device="auto"``: ``"auto"`` is CUDA where present, else the CPU.
device: str = "auto"

#: 0 is silent, 1 shows progress bars and warnings, 2 also logs what each call decided.
verbosity: int = 1

__all__ = ["device", "verbosity"]
