"""Votes of groups of a query's cells: the user's groups, or fine ones."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dice import _log
from dice._labels.cells import LabelCells
from dice._labels.fine_groups import fine_groups
from dice._labels.known_groups import query_order
from dice._labels.votes import Votes, vote, votes_help
from dice._types import Floats


def count_votes(
    cells: LabelCells, probabilities: Floats, groups: pd.Categorical | None, alpha: float
) -> tuple[pd.Categorical, Votes] | None:
    """Votes of the user's groups or, without them, of fine groups; None where these agree no better than chance."""
    if groups is not None:
        voters = np.where(cells.seen, groups.codes, -1)
        return groups, vote(probabilities, voters, len(groups.categories), alpha)
    codes = fine_groups(cells.y, query_order(cells.query))
    n_groups = int(codes.max(initial=-1)) + 1
    votes = vote(probabilities, codes, n_groups, alpha)
    if not n_groups or not votes_help(probabilities.argmax(1), codes, votes.probabilities.argmax(1)):
        _log.info("Votes are left out: fine groups of cells agree on labels no better than random ones.")
        return None
    return pd.Categorical.from_codes(codes, [str(code) for code in range(n_groups)]), votes
