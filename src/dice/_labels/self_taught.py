"""A query that teaches itself: a regression on its own latents, learned from its most certain cells of each label.

Views compare a query with the reference, and share what the reference cannot know of the query. Cells of a query lie
together by type whatever the shift is, so that certain cells can tell what doubtful ones beside them are. Every cell
is judged by a regression that it did not take part in: cells that teach themselves confirm their own errors.
"""

from __future__ import annotations

import numpy as np

from dice._model.logistic import LATENT_STRENGTH, fit_logistic
from dice._types import Codes, Floats, Mask

#: Share of the cells of each label that teach, and fewest cells of a label that do, where it has them.
CERTAIN, FEWEST_TAUGHT = 0.7, 5
#: Parts of the query; each is judged by the others.
TAUGHT_FOLDS = 5
#: Weight of the regression beside the views for a label of many cells, and teaching cells at which it is half of that.
WEIGHT, HALF_WEIGHT = 0.5, 20.0
#: A label that the views give to at least this many cells is never taken from all of them.
KEPT_CELLS = 5


def teach(probabilities: Floats, current: Floats, latents: Floats, parts: Codes, among: Mask | None = None) -> Floats:
    """Average probabilities (n, C) of views with those of the query's own regression.

    Parameters
    ----------
    probabilities
        The mean of the views.
    current
        What the teaching cells are chosen and named by: the views, or the result of an earlier round.
    latents
        Scaled latents (n, p) of the query.
    parts
        Part (n,) of every cell, from 0 to `TAUGHT_FOLDS` - 1.
    among
        Cells (n,) that may teach; None for all.
    """
    labels, teaching = current.argmax(1), certain_cells(current)
    teaching = teaching if among is None else teaching & among
    own = probabilities.copy()
    for part in range(TAUGHT_FOLDS):
        learned = teaching & (parts != part)
        if len(np.unique(labels[learned])) > 1 and (parts == part).any():
            predict = fit_logistic(
                latents[learned], labels[learned], probabilities.shape[1], strength=LATENT_STRENGTH, max_iter=40
            )
            own[parts == part] = predict(latents[parts == part])
    given = probabilities.argmax(1)
    n_teaching = np.bincount(labels[teaching], minlength=probabilities.shape[1])
    share = (WEIGHT * n_teaching / (n_teaching + HALF_WEIGHT))[given][:, None]
    return with_all_labels((1 - share) * probabilities + share * own, probabilities)


def certain_cells(probabilities: Floats) -> Mask:
    """Most certain cells (n,) of each label."""
    labels, best = probabilities.argmax(1), probabilities.max(1)
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        n = min(max(int(np.ceil(CERTAIN * len(mine))), FEWEST_TAUGHT), len(mine))
        chosen[mine[np.argsort(-best[mine], kind="stable")[:n]]] = True
    return chosen


def with_all_labels(taught: Floats, probabilities: Floats) -> Floats:
    """Give labels back that several cells had by the views and none has any more."""
    before, n_labels = probabilities.argmax(1), taught.shape[1]
    given = np.bincount(before, minlength=n_labels) >= KEPT_CELLS
    # Cells that are given back may have been the last ones of another label.
    while (lost := given & (np.bincount(taught.argmax(1), minlength=n_labels) == 0)).any():
        taught = np.where(lost[before][:, None], probabilities, taught)
    return taught
