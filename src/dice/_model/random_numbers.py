"""Random numbers addressed by (seed, cell name, stream, dimension).

A cell's draws depend on nothing but this address: not on the chunk it is in, its neighbours in the file, or the
number of workers. Every 64-bit word is the SplitMix64 finaliser (Steele, Lea & Flood 2014) of the cell's key and
a counter, so any part of the sequence is computed directly, for all cells at once, on any device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Signed forms of 0xBF58476D1CE4E5B9 and 0x94D049BB133111EB: torch has no unsigned arithmetic, and
# multiplication modulo 2^64 does not care.
_MIX_1, _MIX_2 = -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
_MASK_32 = 0xFFFFFFFF


def cell_seeds(names: Iterable[str], seed: int) -> NDArray[np.int64]:
    """One 64-bit seed for every cell. Cells with the same name have different seeds."""
    seen: dict[str, int] = {}
    keys = []
    for name in names:
        occurrence = seen[name] = seen.get(name, -1) + 1
        text = f"{seed}\0{occurrence}\0{name}".encode(errors="surrogatepass")
        keys.append(hashlib.blake2b(text, digest_size=8).digest())
    return np.frombuffer(bytearray(b"".join(keys)), dtype="<i8")


class CellNoise:
    """Standard normal and uniform variables of a set of cells.

    Parameters
    ----------
    keys
        Keys (n,) of the cells from :func:`cell_seeds`.
    stream
        Numbers that name what the draws are for (a sample, a chain); different streams are independent.
    """

    def __init__(self, keys: Tensor, *stream: int) -> None:
        self.keys = keys
        self.stream = stream

    def spawn(self, *stream: int) -> CellNoise:
        """The same cells in a stream below this one."""
        return CellNoise(self.keys, *self.stream, *stream)

    def normal(self, step: int, size: int) -> Tensor:
        """Standard normal variables (n, size), float32, by the Box-Muller transform."""
        words = self._words(step, (size + 1) // 2)
        radius = torch.sqrt(-2 * torch.log(_unit(words >> 32)))
        angle = 2 * torch.pi * _unit(words)
        pairs = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=2)
        return pairs.flatten(1)[:, :size]

    def uniform(self, step: int, size: int) -> Tensor:
        """Uniform variables (n, size) in (0, 1], float32."""
        return _unit(self._words(step, size))

    def signs(self, step: int, size: int) -> Tensor:
        """Independent signs -1 and 1 (n, size), float32."""
        return (self._words(step, size) & 1).float() * 2 - 1

    def _words(self, step: int, size: int) -> Tensor:
        counters = torch.arange(size, dtype=torch.int64, device=self.keys.device)
        for part in (step, *reversed(self.stream)):
            counters = _mix(counters ^ _mix(torch.full_like(counters, part + 1)))
        return _mix(self.keys[:, None] ^ counters)


def _mix(x: Tensor) -> Tensor:
    """The SplitMix64 finaliser: a bijection of 64-bit words whose output bits look independent."""
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's own copies the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _unit(words: Tensor) -> Tensor:
    """The low 32 bits as a number in (0, 1]."""
    return ((words & _MASK_32).double() + 0.5).mul_(2.0**-32).float()
