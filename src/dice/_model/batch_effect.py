"""How much of the expression differs between batches."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dice._types import Chunk, Codes

#: Cells of a label below which it says nothing of batches.
FEWEST_IN_GROUP = 10


def explained_by_batches(x: Chunk, batches: Codes, labels: Codes | None = None) -> float:
    """Share of the variance of expression (n, d) within labels (n,) that batches (n,) explain, beyond chance.

    The omega squared of a one-way analysis of variance, with sums of squares taken over labels and genes. Cells
    without a label (-1) are left out. Batches that share no label explain nothing.
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
    """Sum over groups of the squared sum of their cells by their number, and how many groups there are."""
    n_groups = int(codes.max()) + 1
    member = sparse.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(n_groups, len(codes)))
    sums = (member @ values).power(2).sum(1)
    return float((np.asarray(sums).ravel() / np.bincount(codes)).sum()), n_groups
