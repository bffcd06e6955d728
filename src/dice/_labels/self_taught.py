"""Self-taught labels: a regression on the query's latents, learned from its most certain cells of each label.

A shift moves the cells of a type together, so certain cells help to label uncertain cells next to them. Each cell is
predicted by a regression that was fitted without it, because otherwise the regression would confirm its errors.
"""

from __future__ import annotations

import numpy as np

from dice._model.logistic import LATENT_STRENGTH, fit_logistic
from dice._types import Codes, Floats, Mask

#: Share of the cells of each label that are used for teaching, and the minimum number of teaching cells per label.
CERTAIN, FEWEST_TAUGHT = 0.7, 5
#: Number of folds. Each fold is predicted from the others.
TAUGHT_FOLDS = 5
#: Largest weight of the regression, and the number of teaching cells of a label at which the weight is half of it.
WEIGHT, HALF_WEIGHT = 0.5, 20.0
#: A label that at least this many cells have before the query teaches itself is never lost.
KEPT_CELLS = 5


def teach(probabilities: Floats, current: Floats, latents: Floats, parts: Codes, among: Mask | None = None) -> Floats:
    """Return probabilities (n, C) of the views averaged with those of the self-taught regression.

    Parameters
    ----------
    probabilities
        Mean probabilities (n, C) of the views.
    current
        Probabilities (n, C) that select and label the teaching cells: those of the views or of an earlier round.
    latents
        Scaled latents (n, p) of the query.
    parts
        Fold (n,) of every cell, from 0 to `TAUGHT_FOLDS` - 1.
    among
        Mask (n,) of the cells that may be used for teaching; None for all cells.
    """
    among = np.ones(len(current), dtype=bool) if among is None else among
    labels, teaching = current.argmax(1), among.copy()
    teaching[among] = certain_cells(current[among])
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
    """Return a mask (n,) of the most certain cells of each label."""
    labels, best = probabilities.argmax(1), probabilities.max(1)
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        n = min(max(int(np.ceil(CERTAIN * len(mine))), FEWEST_TAUGHT), len(mine))
        chosen[mine[np.argsort(-best[mine], kind="stable")[:n]]] = True
    return chosen


def with_all_labels(taught: Floats, probabilities: Floats) -> Floats:
    """Restore labels that the views gave to several cells and that no cell has any longer."""
    before, n_labels = probabilities.argmax(1), taught.shape[1]
    given = np.bincount(before, minlength=n_labels) >= KEPT_CELLS
    # Restoring a label may remove the last cells of another label, hence the loop.
    while (lost := given & (np.bincount(taught.argmax(1), minlength=n_labels) == 0)).any():
        taught = np.where(lost[before][:, None], probabilities, taught)
    return taught
