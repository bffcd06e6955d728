"""Small functions of arrays: subsamples, probabilities, correlations, regression, and regions of samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from dice._errors import InputError
from dice._processes import one_torch_thread
from dice._types import Chunk, Codes, Floats, Mask

if TYPE_CHECKING:
    from torch import Tensor

Number = TypeVar("Number", bound=np.generic)


def subsample(rows: NDArray[Number], most: int) -> NDArray[Number]:
    """Return at most `most` evenly spaced rows, from the first to the last."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.intp)]


def softmax(logits: Floats) -> Floats:
    """Probabilities (..., C) of logits."""
    powers = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(-1, keepdims=True)


#: Results of a function for one chunk: numbers and arrays that are added up over chunks.
Sums: TypeAlias = tuple[Any, ...]
#: Sums a function over all chunks of cells in double precision, in memory, on disk or by workers.
Total: TypeAlias = Callable[[Callable[[Chunk], Sums]], Sums]


def correlations(found: Floats, truth: Floats) -> Floats:
    """Return Pearson's correlation (F,) of every feature over cells with a value; NaN for constant features."""
    known = ~np.isnan(truth)
    n = np.maximum(known.sum(0), 1)
    centred = [np.where(known, x - np.where(known, x, 0).sum(0) / n, 0) for x in (found, truth)]
    size = np.sqrt(np.square(centred[0]).sum(0) * np.square(centred[1]).sum(0))
    varies = size > 1e-9 * n
    return np.where(varies, (centred[0] * centred[1]).sum(0) / np.where(varies, size, 1), np.nan)


#: Inverse penalty of the regression, for standardised genes and for scaled latents.
GENE_STRENGTH, LATENT_STRENGTH = 0.1, 0.5
#: Iterations of the regression on genes. Stopping early is a second penalty: on five pairs of technologies 15
#: iterations were as accurate as 100 or better (.830 against .807 on the mean, one seed), at a fifth of the price.
GENE_ITERATIONS = 15


@dataclass(frozen=True)
class Logistic:
    """A fitted regression: logits are x @ slopes + offset."""

    #: Slopes (p, C) and offset (C,).
    slopes: Floats
    offset: Floats

    def logits(self, x: Floats) -> Floats:
        """Logits (n, C) of cells (n, p)."""
        return np.asarray(x, dtype=np.float32) @ self.slopes + self.offset

    def __call__(self, x: Floats) -> Floats:
        """Class probabilities (n, C) of cells (n, p)."""
        return softmax(self.logits(x))


def fit_logistic(
    x: Floats, codes: NDArray[np.integer] | Mask, n_classes: int, *, strength: float, max_iter: int = 100
) -> Logistic:
    """Multinomial logistic regression with an L2 penalty, by L-BFGS. Classes without cells are unlikely.

    Parameters
    ----------
    x
        Cells (n, p), features of comparable size.
    codes
        Class (n,) of every cell, or the classes (n, C) that it may have: their probabilities are then summed.
    n_classes
        Number of classes C.
    strength
        Inverse of the penalty per cell, as scikit-learn's ``C``.
    max_iter
        Most iterations.
    """
    import torch  # plots import this module and have no use for torch

    centre = x.mean(0)
    cells = torch.as_tensor(np.ascontiguousarray(x - centre), dtype=torch.float32)
    labels = torch.as_tensor(codes, dtype=torch.int64 if codes.ndim == 1 else torch.bool)
    weight = torch.zeros(x.shape[1], n_classes, requires_grad=True)
    bias = torch.zeros(n_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=max_iter, tolerance_grad=1e-5, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        penalty = weight.square().sum() / (2 * strength * len(cells))
        loss: Tensor = _loss(cells @ weight + bias, labels) + penalty
        loss.backward()
        return loss

    with one_torch_thread():
        optimizer.step(closure)
    slopes = weight.detach().numpy()
    return Logistic(slopes, (bias.detach().numpy() - centre @ slopes).astype(np.float32))


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean log-loss for the class (n,) of every cell, or for its possible classes (n, C)."""
    from torch.nn.functional import cross_entropy

    if labels.ndim == 1:
        return cross_entropy(logits, labels)
    possible = logits.masked_fill(~labels, -np.inf)
    return (logits.logsumexp(1) - possible.logsumexp(1)).mean()


#: Maximum number of cells of each side for the regression that separates two sides, and folds of the cross-fit.
CELLS_PER_SIDE, SHIFT_FOLDS = 5000, 5
DOMAIN_PENALTY = 0.1


def separation(reference: Floats, query: Floats, seed: int) -> float:
    """Return how well a logistic regression separates query cells (n, p) from reference cells (m, p), as an AUC.

    The AUC is the probability that a random query cell looks more like a query than a random reference cell does: 0.5
    for cells of one distribution, 1 for cells that do not overlap. The regression overfits its own cells, so the cells
    of each fold are judged by a regression on the other four.
    """
    sides = reference, query
    if min(map(len, sides)) < SHIFT_FOLDS:
        return 0.5
    rng = np.random.default_rng(seed)
    folds = [rng.integers(SHIFT_FOLDS, size=len(cells)) for cells in sides]
    logits = [np.empty(len(cells)) for cells in sides]
    for fold in range(SHIFT_FOLDS):
        parts = [cells[_some(np.flatnonzero(f != fold), rng)] for cells, f in zip(sides, folds, strict=True)]
        # Both sides have equal weight.
        size = max(map(len, parts))
        x = np.concatenate([part[np.arange(size) % len(part)] for part in parts])
        predict = fit_logistic(x, np.repeat([0, 1], size), 2, strength=DOMAIN_PENALTY)
        for cells, f, out in zip(sides, folds, logits, strict=True):
            if (f == fold).any():
                p = np.clip(predict(cells[f == fold]).astype(np.float64), 1e-9, 1)
                out[f == fold] = np.log(p[:, 1]) - np.log(p[:, 0])
    return auc(*logits)


def auc(low: Floats, high: Floats) -> float:
    """Return the probability that a value of `high` exceeds one of `low`; ties count half."""
    ordered = np.sort(low)
    below = (np.searchsorted(ordered, high, "left") + np.searchsorted(ordered, high, "right")) / 2
    return float(below.mean() / max(len(low), 1)) if len(high) else 0.5


def _some(positions: Codes, rng: np.random.Generator) -> Codes:
    return positions if len(positions) <= CELLS_PER_SIDE else rng.choice(positions, CELLS_PER_SIDE, replace=False)


@dataclass(frozen=True)
class CredibleRegion:
    """Region around the posterior samples of a cell: points whose distance to the samples is typical for a sample.

    Half of the samples give the region its shape, which may have several parts; the other half set its radius. If the
    samples come from the true posterior, the truth is one more draw, and the region covers it with probability `level`
    or slightly more. For counts the samples are Gaussian with a learned variance, and coverage is approximate
    (docs/posterior.md).
    """

    shape: NDArray[np.float32]
    radius: float
    level: float
    n_neighbors: int

    @classmethod
    def from_samples(cls, samples: NDArray[np.floating], level: float) -> CredibleRegion:
        """The region of one cell from its posterior samples (S, k)."""
        shape, rest = samples[::2], samples[1::2]
        rank = math.ceil((len(rest) + 1) * level)
        if rank > len(rest):
            needed = 2 * math.ceil(level / (1 - level) - 1e-9)
            raise InputError(f"{len(samples)} samples are too few for level={level}: draw at least {needed}.")
        n_neighbors = max(1, round(math.sqrt(len(shape)) / 2))
        radius = np.sort(_distance(shape, rest, n_neighbors))[rank - 1]
        return cls(np.asarray(shape), float(radius), level, n_neighbors)

    def contains(self, points: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Whether each of `points` (m, k) lies in the region."""
        return _distance(self.shape, np.atleast_2d(points), self.n_neighbors) <= self.radius


def _distance(shape: NDArray[np.floating], points: NDArray[np.floating], n_neighbors: int) -> NDArray[np.floating]:
    """Distance of each point to its n-th nearest sample."""
    distances, _ = KDTree(shape).query(points, k=[n_neighbors])
    return np.asarray(distances)[:, 0]
