"""Cells of a reference that are held out: to weigh candidates by, and to calibrate by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dice._model.presets import ROLES
from dice._types import Codes, Mask

#: With fewer held-out cells than this, candidates cannot be told apart: all cells are held out in turn, in FOLDS folds.
FEWEST_HELD_OUT, FOLDS = 50, 5


def cells_of(roles: Codes, known: Mask, *wanted: str) -> Codes:
    """Positions of the cells with any of the `wanted` roles of which something is known."""
    return np.flatnonzero(np.isin(roles, [ROLES.index(role) for role in wanted]) & known)


def folds_of(train: Codes, validation: Codes, seed: int, *, in_turn: bool = False) -> Iterator[tuple[Codes, Codes]]:
    """Cells to fit and to judge by: those that stopped the training, or all in turn where they are too few."""
    if len(validation) >= FEWEST_HELD_OUT and not in_turn:
        yield train, validation
        return
    cells = np.random.default_rng(seed).permutation(np.concatenate([train, validation]))
    yield from _in_turn(cells, np.arange(len(cells)) % FOLDS)


def folds_by_batch(cells: Codes, batches: Codes, seed: int) -> Iterator[tuple[Codes, Codes]]:
    """The same with whole batches (n,) of the cells in a fold, so that nobody is judged by cells of its own batch."""
    different = np.unique(batches)
    fold = np.random.default_rng(seed).permutation(len(different)) % FOLDS
    yield from _in_turn(cells, fold[np.searchsorted(different, batches)])


def _in_turn(cells: Codes, fold: Codes) -> Iterator[tuple[Codes, Codes]]:
    for number in range(FOLDS):
        test = fold == number
        if test.any() and not test.all():
            yield cells[~test], cells[test]
