"""What measuring the same cells once more would give."""

from __future__ import annotations

import numpy as np

from dice._types import Floats


def at_whole_depth(whole: Floats, halves: Floats) -> Floats:
    """Second measurements (n, s, 2, k) of cells, by two halves of their counts (n, s, 2, k); all denoised.

    Halves differ by more than two measurements with all counts would. By how much more follows from how reliable a
    latent of a half is: the share K of its variance that both halves have in common. With twice the counts it is
    2 K / (1 + K), the formula of Spearman and Brown, and two measurements differ by sqrt(2) / (1 + K) of what halves
    do: .71 where a latent is known well, as the noise of counts goes, up to 1.41 where next to nothing is known and
    halves were denoised to the same. Around the whole cells (n, k), which both of a pair share.
    """
    middle = halves.mean(2, keepdims=True)
    apart = (halves[:, :, 0] - halves[:, :, 1]).var((0, 1)) / 2
    everything = halves.var((0, 1, 2))
    reliability = np.clip(1 - apart / np.where(everything > 0, everything, 1), 0, 1)
    return np.asarray(whole[:, None, None] + np.sqrt(2) / (1 + reliability) * (halves - middle), dtype=np.float32)
