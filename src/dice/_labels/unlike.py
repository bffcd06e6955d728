"""Cells of a query that its reference does not know, for the status of their labels."""

from __future__ import annotations

import numpy as np

from dice._labels.cells import LabelCells
from dice._labels.conformal import p_values
from dice._labels.doubt import UNLIKE_RATE
from dice._labels.fine_groups import fine_groups
from dice._labels.known_groups import call_groups, positions, query_order
from dice._labels.model import LabelModel
from dice._labels.novelty import novelty_scores
from dice._types import Mask

#: Share of groups called novel that may belong to the reference after all, as in :func:`dice.tl.novelty`.
FDR = 0.1


def unlike_cells(cells: LabelCells, model: LabelModel) -> Mask:
    """Cells (n,) of fine groups that are called novel, and cells further from all labels than 99 % of known ones.

    Single cells of a query that differs as a whole are not judged: all of them are far from the reference.
    """
    known = model.groups(cells.scale)
    labels = positions(model.calibration_codes, known.columns.astype(np.intp))
    codes = fine_groups(cells.y, query_order(cells.query))
    n_groups = int(codes.max(initial=-1)) + 1
    called = call_groups(cells.query, cells.y, codes, n_groups, (known, model.calibration_y, labels), FDR)
    unlike = np.append(called.novel, False)[codes]
    if called.shifted:
        return np.asarray(unlike)
    novel, usual = novelty_scores(known, cells.y, model.calibration_y)
    return np.asarray(unlike | (p_values(novel, usual) <= UNLIKE_RATE))
