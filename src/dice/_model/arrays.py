"""Statistics of arrays: subsamples, correlations, logistic regression, shifts, batches and credible regions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import KDTree

from dice._arguments import short_seed
from dice._errors import InputError
from dice._processes import one_torch_thread
from dice._types import Chunk, Codes, Floats, Mask


def subsample(rows: NDArray, most: int) -> NDArray:
    """Return at most `most` evenly spaced rows, from the first to the last."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.intp)]


def softmax(logits: Floats) -> Floats:
    """Return the probabilities (..., C) of logits."""
    powers = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(-1, keepdims=True)


#: Result of a function for one chunk of cells. Its numbers and arrays are added up over chunks.
Sums: TypeAlias = tuple[Any, ...]
#: A callable that applies a function to every chunk of cells and adds up the results in double precision. The chunks
#: may be in memory, on disk or at workers.
Total: TypeAlias = Callable[[Callable[[Chunk], Sums]], Sums]


def correlations(found: Floats, truth: Floats) -> Floats:
    """Return Pearson's correlation (F,) of every feature, over cells with a value. NaN for constant features."""
    known = ~np.isnan(truth)
    n = np.maximum(known.sum(0), 1)
    centred = [np.where(known, x - np.where(known, x, 0).sum(0) / n, 0) for x in (found, truth)]
    size = np.sqrt(np.square(centred[0]).sum(0) * np.square(centred[1]).sum(0))
    varies = size > 1e-9 * n
    return np.where(varies, (centred[0] * centred[1]).sum(0) / np.where(varies, size, 1), np.nan)


#: Inverse of the regression's penalty, for standardised genes and for scaled latents.
GENE_STRENGTH, LATENT_STRENGTH = 0.1, 0.5


@dataclass(frozen=True)
class Logistic:
    """A fitted logistic regression: the logits are x @ slopes + offset."""

    #: Slopes (p, C) and offset (C,).
    slopes: Floats
    offset: Floats

    def logits(self, x: Floats) -> Floats:
        """Return the logits (n, C) of cells (n, p)."""
        return np.asarray(x, dtype=np.float32) @ self.slopes + self.offset

    def __call__(self, x: Floats) -> Floats:
        """Return the class probabilities (n, C) of cells (n, p)."""
        return softmax(self.logits(x))


def fit_logistic(
    x: Floats, codes: NDArray[np.integer] | Mask, n_classes: int, *, strength: float, max_iter: int = 100
) -> Logistic:
    """Fit a multinomial logistic regression with an L2 penalty by L-BFGS. Classes without cells get low probabilities.

    Parameters
    ----------
    x
        Features (n, p) of the cells, of comparable size.
    codes
        Class (n,) of every cell, or a mask (n, C) of its possible classes, whose probabilities are then summed.
    n_classes
        Number of classes C.
    strength
        Inverse of the penalty per cell, like scikit-learn's ``C``.
    max_iter
        Maximum number of iterations.
    """
    import torch  # not at the top: plots import this module and do not need torch

    centre = x.mean(0)
    cells = torch.as_tensor(np.ascontiguousarray(x - centre), dtype=torch.float32)
    labels = torch.as_tensor(codes, dtype=torch.int64 if codes.ndim == 1 else torch.bool)
    weight = torch.zeros(x.shape[1], n_classes, requires_grad=True)
    bias = torch.zeros(n_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=max_iter, tolerance_grad=1e-5, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        logits = cells @ weight + bias
        if labels.ndim == 1:
            log_loss = torch.nn.functional.cross_entropy(logits, labels)
        else:
            log_loss = (logits.logsumexp(1) - logits.masked_fill(~labels, -np.inf).logsumexp(1)).mean()
        loss = log_loss + weight.square().sum() / (2 * strength * len(cells))
        loss.backward()
        return loss

    with one_torch_thread():
        optimizer.step(closure)
    slopes = weight.detach().numpy()
    return Logistic(slopes, (bias.detach().numpy() - centre @ slopes).astype(np.float32))


#: AUC of `separation` above which a query counts as different from the reference (docs/labels.md).
DOUBTFUL = 0.65
#: Maximum number of cells of the query and of the reference in `separation`, and its number of cross-fitting folds.
CELLS_PER_SIDE, SHIFT_FOLDS = 5000, 5
DOMAIN_PENALTY = 0.1


def separation(reference: Floats, query: Floats, seed: int) -> float:
    """Return the AUC of a logistic regression that separates query cells (n, p) from reference cells (m, p).

    The AUC is 0.5 if both have the same distribution and 1 if they do not overlap. A regression overfits the cells that
    it is fitted to, so the cells of each fold are scored by a regression on the other folds.
    """
    sides = reference, query
    if min(map(len, sides)) < SHIFT_FOLDS:
        return 0.5
    rng = np.random.default_rng(seed)
    folds = [rng.integers(SHIFT_FOLDS, size=len(cells)) for cells in sides]
    logits = [np.empty(len(cells)) for cells in sides]
    for fold in range(SHIFT_FOLDS):
        parts = [cells[_some(np.flatnonzero(f != fold), rng)] for cells, f in zip(sides, folds, strict=True)]
        # Query and reference have equal weight.
        size = max(map(len, parts))
        x = np.concatenate([part[np.arange(size) % len(part)] for part in parts])
        predict = fit_logistic(x, np.repeat([0, 1], size), 2, strength=DOMAIN_PENALTY)
        for cells, f, out in zip(sides, folds, logits, strict=True):
            if (f == fold).any():
                p = np.clip(predict(cells[f == fold]).astype(np.float64), 1e-9, 1)
                out[f == fold] = np.log(p[:, 1]) - np.log(p[:, 0])
    return auc(*logits)


def auc(low: Floats, high: Floats) -> float:
    """Return the probability that a random value of `high` exceeds a random value of `low`; ties count half."""
    ordered = np.sort(low)
    below = (np.searchsorted(ordered, high, "left") + np.searchsorted(ordered, high, "right")) / 2
    return float(below.mean() / max(len(low), 1)) if len(high) else 0.5


def _some(positions: Codes, rng: np.random.Generator) -> Codes:
    return positions if len(positions) <= CELLS_PER_SIDE else rng.choice(positions, CELLS_PER_SIDE, replace=False)


def harmony(latents: Floats, batches: NDArray[np.str_], random_state: int) -> Floats:
    """Return the latents (n, k) of cells after Harmony has removed the differences between `batches` (n,)."""
    from harmonypy import run_harmony

    # The default of harmonypy rounds to zero clusters for fewer than 15 cells.
    n_clusters = max(1, min(round(len(latents) / 30), 100))
    options = {"nclust": n_clusters, "random_state": short_seed(random_state, 31), "verbose": False}
    found = run_harmony(latents.astype(np.float64), {"batch": batches}, "batch", **options)
    corrected = np.asarray(found.Z_corr)
    if not np.isfinite(corrected).all():
        raise InputError("Harmony returned values that are not finite: pass a smaller `n_comps`.")
    return corrected


#: Labels with fewer cells than this are not used to compare batches.
FEWEST_IN_GROUP = 10


def explained_by_batches(x: Chunk, batches: Codes, labels: Codes | None = None) -> float:
    """Return the share of the variance within labels (n,) that batches (n,) explain, for expression (n, d).

    This is the omega squared of a one-way analysis of variance, which is 0 on average by chance. Sums of squares run
    over all labels and genes. Cells without a label (-1) are left out. Batches that share no label explain nothing.
    """
    strata = np.zeros(len(batches), dtype=np.intp) if labels is None else np.asarray(labels)
    size = np.bincount(strata[strata >= 0], minlength=strata.max(initial=0) + 1)
    kept = np.flatnonzero((strata >= 0) & (size[strata] >= FEWEST_IN_GROUP))
    if not len(kept):
        return 0.0
    values = sparse.csr_array(x)[kept].astype(np.float64)
    _, whole = np.unique(strata[kept], return_inverse=True)
    _, parts = np.unique(np.stack([strata[kept], batches[kept]]), axis=1, return_inverse=True)
    squares = float((values.data**2).sum())
    (by_label, n_labels), (by_batch, n_batches) = _between(values, whole), _between(values, parts.ravel())
    free_between, free_within = n_batches - n_labels, len(kept) - n_batches
    if free_between < 1 or free_within < 1:
        return 0.0
    within = (squares - by_batch) / free_within
    return float(((by_batch - by_label) - free_between * within) / max(squares - by_label + within, 1e-12))


def _between(values: sparse.csr_array, codes: Codes) -> tuple[float, int]:
    """Return the sum over groups of their size times their squared mean, and the number of groups."""
    n_groups = int(codes.max()) + 1
    member = sparse.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(n_groups, len(codes)))
    sums = (member @ values).power(2).sum(1)
    return float((np.asarray(sums).ravel() / np.bincount(codes)).sum()), n_groups


@dataclass(frozen=True)
class CredibleRegion:
    """Credible region of a cell: all points that are as close to its posterior samples as most samples are.

    Half of the samples set the shape of the region, which may have several parts. The other half set its radius. If
    the samples come from the true posterior, the true latents are one more draw from this posterior. The region then
    contains the true latents with probability `level` or slightly more. For counts, samples are Gaussian with a learned
    variance, and coverage is approximate (docs/posterior.md).
    """

    shape: NDArray[np.float32]
    radius: float
    level: float
    n_neighbors: int

    @classmethod
    def from_samples(cls, samples: NDArray[np.floating], level: float) -> Self:
        """Build the region of one cell from its posterior samples (S, k)."""
        shape, rest = samples[::2], samples[1::2]
        rank = math.ceil((len(rest) + 1) * level)
        if rank > len(rest):
            needed = 2 * math.ceil(level / (1 - level) - 1e-9)
            raise InputError(f"{len(samples)} samples are too few for level={level}: draw at least {needed}.")
        n_neighbors = max(1, round(math.sqrt(len(shape)) / 2))
        radius = np.sort(_distance(shape, rest, n_neighbors))[rank - 1]
        return cls(np.asarray(shape), float(radius), level, n_neighbors)

    def contains(self, points: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Return whether each of the `points` (m, k) lies in the region."""
        return _distance(self.shape, np.atleast_2d(points), self.n_neighbors) <= self.radius


def _distance(shape: NDArray[np.floating], points: NDArray[np.floating], n_neighbors: int) -> NDArray[np.floating]:
    """Return the distance of each point to its n-th nearest sample."""
    distances, _ = KDTree(shape).query(points, k=[n_neighbors])
    return np.asarray(distances)[:, 0]
