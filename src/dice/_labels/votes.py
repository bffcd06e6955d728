"""Labels of groups of cells, by the votes of their cells: the user's groups, or fine ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from dice import _log
from dice._labels.cells import LabelCells
from dice._query.domain_shift import query_order
from dice._types import Codes, Floats, Mask

#: Permutations by which chance is known.
PERMUTATIONS = 20


@dataclass(frozen=True)
class Votes:
    """What the cells of G groups say together of C labels."""

    #: Cells (G,) of every group, and the mean (G, C) of their probabilities.
    n_cells: Codes
    probabilities: Floats
    #: Shares (G, C) of the cells whose most likely label this is.
    shares: Floats
    #: Labels (G, C) that together have the probability 1 - alpha.
    sets: Mask


def vote(probabilities: Floats, groups: NDArray[np.integer], n_groups: int, alpha: float) -> Votes:
    """Count the votes of cells (n, C) by group (n,), -1 for none.

    Probabilities are averaged, not multiplied: cells of a cluster share their errors, and are no independent witnesses.
    """
    n, n_labels = np.bincount(groups[groups >= 0], minlength=n_groups), probabilities.shape[1]
    voters = groups >= 0
    sums, best = np.zeros((n_groups, n_labels)), np.zeros((n_groups, n_labels))
    np.add.at(sums, groups[voters], probabilities[voters])
    np.add.at(best, (groups[voters], probabilities[voters].argmax(1)), 1)
    mean, shares = (values / np.maximum(n, 1)[:, None] for values in (sums, best))
    order = np.argsort(-mean, axis=1, kind="stable")
    ranked = np.take_along_axis(mean, order, axis=1)
    sets = np.zeros(mean.shape, dtype=bool)
    # A label is in the set as long as those before it have not reached the share.
    np.put_along_axis(sets, order, np.cumsum(ranked, axis=1) - ranked < 1 - alpha, axis=1)
    return Votes(n.astype(np.intp), mean, shares, sets)


def votes_help(labels: NDArray[np.integer], groups: NDArray[np.integer], voted: NDArray[np.integer]) -> bool:
    """Whether groups (n,) agree on the labels (n,) of their cells better than groups at random would.

    `voted` (G,) is the label of every group. Cells in no group (-1) do not count. Random groups keep their sizes; the
    agreement of both is the share of cells that have the most frequent label of their group.
    """
    known = groups >= 0
    if not known.any():
        return False
    agreement = float((labels[known] == voted[groups[known]]).mean())
    rng = np.random.default_rng(0)
    chance = [_agreement(rng.permutation(labels[known]), groups[known]) for _ in range(PERMUTATIONS)]
    return bool(agreement > np.mean(chance) + 2 * np.std(chance))


def _agreement(labels: NDArray[np.integer], groups: NDArray[np.integer]) -> float:
    """Share of cells that have the most frequent label of their group."""
    table = np.zeros((groups.max() + 1, labels.max() + 1))
    np.add.at(table, (groups, labels), 1)
    return float(table.max(1).sum() / len(labels))


#: Cells of a group, most groups, and cells that the groups are learned from.
GROUP_CELLS, MOST_GROUPS, LEARNED_CELLS = 25, 400, 10_000


def fine_groups(latents: Floats, order: Codes) -> Codes:
    """Groups (n,) of cells with latents (n, k) by k-means; -1 for cells that are not in `order`.

    `order` are positions of the cells to group. The first ones teach, so that it should be random and belong to the
    cells rather than to the file.
    """
    codes = np.full(len(latents), -1, dtype=np.intp)
    n_groups = int(np.clip(len(order) // GROUP_CELLS, 1, MOST_GROUPS))
    if not len(order):
        return codes
    learned = latents[order[:LEARNED_CELLS]].astype(np.float32)
    model = KMeans(min(n_groups, len(np.unique(learned, axis=0))), n_init=1, random_state=0).fit(learned)
    codes[order] = model.predict(np.ascontiguousarray(latents[order], dtype=np.float32))
    return codes


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
