"""Labels of groups of cells by votes. The groups are given by the user or fine k-means groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from dice import _log
from dice._labels.cells import LabelCells
from dice._query.shift import query_order
from dice._types import Codes, Floats, Mask

#: Number of permutations for the agreement by chance.
PERMUTATIONS = 20


@dataclass(frozen=True)
class Votes:
    """Votes of the cells of G groups for C labels."""

    #: Number of cells (G,) of every group, and the mean (G, C) of their probabilities.
    n_cells: Codes
    probabilities: Floats
    #: Share (G, C) of the cells with each label as most likely label.
    shares: Floats
    #: Sets (G, C) of the labels that together have the probability 1 - alpha.
    sets: Mask


def vote(probabilities: Floats, groups: NDArray[np.integer], n_groups: int, alpha: float) -> Votes:
    """Return the votes of cells (n, C) per group (n,). Cells with the code -1 do not vote.

    Probabilities are averaged and not multiplied, because errors of cells in the same group are correlated.
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
    # A label is in the set if more likely labels have not reached the probability yet.
    np.put_along_axis(sets, order, np.cumsum(ranked, axis=1) - ranked < 1 - alpha, axis=1)
    return Votes(n.astype(np.intp), mean, shares, sets)


def votes_help(probabilities: Floats, groups: NDArray[np.integer], voted: NDArray[np.integer]) -> bool:
    """Whether votes of groups (n,) can help: groups agree better than by chance, and change few labels.

    Votes that change more labels than the probabilities (n, C) expect to be wrong make more errors than they mend.
    `voted` (G,) is the label of every group. Cells in no group (-1) do not count. Random groups have the same sizes;
    agreement is the share of cells that have the most frequent label of their group.
    """
    known = groups >= 0
    if not known.any():
        return False
    labels = probabilities.argmax(1)
    agreement = float((labels[known] == voted[groups[known]]).mean())
    if 1 - agreement > 1 - probabilities[known].max(1).mean():
        return False
    rng = np.random.default_rng(0)
    chance = [_agreement(rng.permutation(labels[known]), groups[known]) for _ in range(PERMUTATIONS)]
    return bool(agreement > np.mean(chance) + 2 * np.std(chance))


def _agreement(labels: NDArray[np.integer], groups: NDArray[np.integer]) -> float:
    """Return the share of cells with the most frequent label of their group."""
    table = np.zeros((groups.max() + 1, labels.max() + 1))
    np.add.at(table, (groups, labels), 1)
    return float(table.max(1).sum() / len(labels))


#: Mean number of cells per group, maximum number of groups, and maximum number of cells to learn groups from.
GROUP_CELLS, MOST_GROUPS, LEARNED_CELLS = 25, 400, 10_000


def fine_groups(latents: Floats, order: Codes) -> Codes:
    """Return k-means groups (n,) of cells with latents (n, k); -1 for cells that are not in `order`.

    `order` holds the positions of the cells to group. Groups are learned from the first ones, so the order should be
    random and independent of the file.
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
    """Return the votes of the given groups or of fine groups; None if fine groups agree no better than chance."""
    if groups is not None:
        voters = np.where(cells.seen, groups.codes, -1)
        return groups, vote(probabilities, voters, len(groups.categories), alpha)
    codes = fine_groups(cells.y, query_order(cells.query))
    n_groups = int(codes.max(initial=-1)) + 1
    votes = vote(probabilities, codes, n_groups, alpha)
    if not n_groups or not votes_help(probabilities, codes, votes.probabilities.argmax(1)):
        _log.info("Votes are left out: fine groups would change more labels than are expected to be wrong.")
        return None
    return pd.Categorical.from_codes(codes, [str(code) for code in range(n_groups)]), votes
