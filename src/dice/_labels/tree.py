"""A tree of labels, and for every cell the smallest node of it that can be trusted.

A cell starts at its most likely label and moves towards the root until the probability of the node exceeds a
threshold. Nodes along this path are nested, so that a larger threshold can only turn wrong nodes into right ones. The
threshold for an error rate is therefore a quantile: of calibration cells with known labels (split conformal
prediction, exact for exchangeable cells), or the value at which the probabilities themselves expect that rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from dice._errors import InputError
from dice._types import Codes, Floats, Mask

#: Name of the root: the label of a cell is not known at any level.
UNRESOLVED = "unresolved"
#: Labels that the name of a learned node lists.
LISTED_LABELS = 3


@dataclass(frozen=True)
class LabelTree:
    """Nodes with a name and a parent each. The first nodes are the C labels, and the last one is the root."""

    names: tuple[str, ...]
    #: Parent (N,) of every node; the root is its own.
    parents: Codes
    n_labels: int

    @cached_property
    def members(self) -> Mask:
        """Which labels (N, C) every node holds."""
        members = np.zeros((len(self.names), self.n_labels), dtype=bool)
        for label in range(self.n_labels):
            members[self.path(label), label] = True
        return members

    @cached_property
    def depths(self) -> Codes:
        """Steps (N,) from every node to the root."""
        return np.array([len(self.path(node)) - 1 for node in range(len(self.names))])

    @cached_property
    def paths(self) -> Codes:
        """Nodes (C, D) from every label to the root, which fills the rest of its row."""
        paths = [self.path(label) for label in range(self.n_labels)]
        longest, root = max(map(len, paths)), len(self.names) - 1
        return np.array([path + [root] * (longest - len(path)) for path in paths])

    def path(self, node: int) -> list[int]:
        """Nodes from this one to the root, both included."""
        path = [node]
        while self.parents[path[-1]] != path[-1]:
            path.append(int(self.parents[path[-1]]))
        return path

    @classmethod
    def of(cls, labels: Sequence[str], hierarchy: Mapping[str, str]) -> LabelTree:
        """The tree that a mapping from child to parent describes. Labels without a parent hang at the root."""
        unknown = sorted(set(hierarchy) - set(labels) - set(hierarchy.values()))
        if unknown:
            raise InputError(
                f"hierarchy= names {unknown[:5]}, which are neither labels nor parents of any: check their spelling."
            )
        also = sorted(set(hierarchy.values()) & set(labels))
        if also:
            raise InputError(f"hierarchy= has {also[:5]} as parents, which are labels of cells: rename the parents.")
        kept = [*labels]
        for label in labels:
            path = [label]
            while path[-1] in hierarchy:
                path.append(hierarchy[path[-1]])
                if path[-1] in path[:-1]:
                    raise InputError(f"hierarchy= goes in a circle at {path[-1]!r}: a node cannot be above itself.")
            kept += [name for name in path if name not in kept]
        number = {name: at for at, name in enumerate(kept)}
        root = len(kept)
        parents = [number[hierarchy[name]] if name in hierarchy else root for name in kept]
        return cls((*kept, UNRESOLVED), np.array([*parents, root]), len(labels))

    @classmethod
    def learned(cls, labels: Sequence[str], confusion: Floats) -> LabelTree:
        """Join labels that are confused most, step by step (average linkage).

        `confusion` (C, C) is the mean probability of each label for cells of each other label.
        """
        n = len(labels)
        alike = (confusion + confusion.T) / 2
        distance = -np.log(np.maximum(alike, 1e-6))
        np.fill_diagonal(distance, 0)
        steps = linkage(squareform(distance - distance[~np.eye(n, dtype=bool)].min(), checks=False), "average")
        parents = np.arange(2 * n - 1)
        for step, (a, b, *_) in enumerate(steps):
            parents[[int(a), int(b)]] = n + step
        tree = cls(tuple(map(str, range(2 * n - 1))), parents, n)
        names = [_joined([labels[int(at)] for at in np.flatnonzero(row)]) for row in tree.members]
        return cls((*labels, *names[n:-1], UNRESOLVED), parents, n)

    def nodes(self, probabilities: Floats, threshold: float) -> Codes:
        """The smallest node (n,) on the path of each cell's most likely label whose probability exceeds a threshold."""
        paths = self.paths[probabilities.argmax(1)]
        above = self._along(probabilities, paths) > threshold
        # The root holds every label, whatever rounding makes of its probability.
        above[:, -1] = True
        return np.take_along_axis(paths, above.argmax(1)[:, None], axis=1)[:, 0]

    def probability(self, probabilities: Floats, nodes: Codes) -> Floats:
        """Probability (n,) of one node (n,) of every cell."""
        return np.asarray(np.where(nodes == len(self.names) - 1, 1.0, (probabilities * self.members[nodes]).sum(1)))

    def calibrated(self, probabilities: Floats, codes: Codes, alpha: float) -> float:
        """Threshold with an error rate of at most alpha for cells exchangeable with these, of known labels (m,)."""
        paths = self.paths[probabilities.argmax(1)]
        wrong = ~self.members[paths, codes[:, None]]
        # A cell is wrong exactly if the threshold is below the probability of the last wrong node on its path.
        needed = np.sort(np.where(wrong, self._along(probabilities, paths), 0.0).max(1))
        rank = int(np.ceil((len(codes) + 1) * (1 - alpha)))
        return float(needed[rank - 1]) if rank <= len(codes) else 1.0

    def expected(self, probabilities: Floats, alpha: float) -> float:
        """Smallest threshold at which probabilities (n, C) expect an error rate of at most alpha."""
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            error = 1 - self.probability(probabilities, self.nodes(probabilities, middle)).mean()
            low, high = (middle, high) if error > alpha else (low, middle)
        return high

    def _along(self, probabilities: Floats, paths: Codes) -> Floats:
        """Probabilities (n, D) of the nodes (n, D) on the path of each cell."""
        return np.take_along_axis(probabilities @ self.members.T.astype(probabilities.dtype), paths, axis=1)


def _joined(labels: Sequence[str]) -> str:
    """A name for several labels: all of them, or the first ones and the number of others."""
    if len(labels) <= LISTED_LABELS:
        return " | ".join(labels)
    return (
        f"{' | '.join(labels[: LISTED_LABELS - 1])} | {len(labels) - LISTED_LABELS + 1} more ending with {labels[-1]}"
    )


def hierarchy_of(levels: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The mapping from child to parent of columns, coarse to fine, that must be nested in each other."""
    parents: dict[str, str] = {}
    for coarse, fine in pairwise(levels):
        for child, parent in dict.fromkeys(zip(levels[fine], levels[coarse], strict=True)):
            if child == parent:
                raise InputError(f"{child!r} is a name in both {coarse!r} and {fine!r}: rename one of them.")
            if parents.setdefault(child, parent) != parent:
                raise InputError(
                    f"{fine!r} is not nested in {coarse!r}: cells of {child!r} are both {parents[child]!r} and "
                    f"{parent!r}."
                )
    return parents
