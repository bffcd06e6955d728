"""Differences between batches: the share of the variance that they explain, and their removal by Harmony."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._arguments import short_seed
from dice._errors import InputError
from dice._types import Chunk, Codes, Floats


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
    """Return the share of the variance of expression (n, d) within labels (n,) that batches (n,) explain.

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
