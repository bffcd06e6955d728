"""ALRA (Linderman et al. 2022), written from its description: a low-rank matrix with its zeros put back.

There is no package for it. The rank is where the spacing of the singular values last stands out from that of the
tail; each gene is thresholded at the size of its most negative value, and what is left is rescaled to the mean and
standard deviation that the gene's positive values had.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils.extmath import randomized_svd


def alra(expression: np.ndarray, *, rank: int | None = None, random_state: int = 0) -> np.ndarray:
    """Impute log-normalised expression (cells, genes); values that were measured as positive stay positive."""
    if rank is None:
        rank = choose_rank(expression, random_state=random_state)
    u, s, vt = randomized_svd(expression, rank, n_iter=10, random_state=random_state)
    return restore((u * s) @ vt, expression)


def restore(low_rank: np.ndarray, expression: np.ndarray) -> np.ndarray:
    """Put zeros and scale back into a low-rank approximation of `expression`."""
    # A gene's true zeros scatter symmetrically around zero, so that its most negative value bounds them above too.
    kept = np.where(low_rank > np.abs(low_rank.min(0)), low_rank, 0.0)
    imputed = _rescale(kept, expression)
    return np.where((imputed <= 0) & (expression > 0), expression, imputed)


def choose_rank(expression: np.ndarray, *, n_values: int = 100, tail: int = 80, random_state: int = 0) -> int:
    """The last singular value whose distance to the next exceeds six standard deviations of the tail's distances."""
    n_values = min(n_values, min(expression.shape) - 1)
    tail = min(tail, n_values * 4 // 5)
    _, s, _ = randomized_svd(expression, n_values, n_iter=10, random_state=random_state)
    gaps = s[:-1] - s[1:]
    noise = gaps[tail - 1 :]
    outstanding = np.flatnonzero(gaps > noise.mean() + 6 * noise.std(ddof=1))
    return int(outstanding.max(initial=0)) + 1


def _rescale(kept: np.ndarray, expression: np.ndarray) -> np.ndarray:
    """Give the positive values of every gene the mean and standard deviation of the measured ones."""
    before, after = (_moments(matrix) for matrix in (kept, expression))
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = after[1] / before[1]
        shift = after[0] - before[0] * factor
    usable = np.isfinite(factor) & np.isfinite(shift) & (factor > 0)
    scaled = kept * np.where(usable, factor, 1.0) + np.where(usable, shift, 0.0)
    return np.where(kept > 0, np.maximum(scaled, 0.0), 0.0)


def _moments(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the positive values of every gene."""
    positive = matrix > 0
    n = positive.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = matrix.sum(0, where=positive) / n
        variance = np.square(matrix - mean).sum(0, where=positive) / (n - 1)
    return mean, np.sqrt(variance)
