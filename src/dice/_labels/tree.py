"""A tree of labels, and the smallest node of the tree that can be trusted for each cell.

A cell starts at its most likely label and moves towards the root until the probability of the node exceeds a threshold.
Nodes along this path are nested, so a larger threshold can only turn wrong nodes into right ones. There are two ways to
find the threshold for an error rate. The first is a quantile over calibration cells with known labels (split conformal
prediction, exact for exchangeable cells). The second is the threshold at which the probabilities imply this error rate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from dice._errors import InputError
from dice._types import Codes, Floats, Mask

#: Name of the root, for cells whose label is not known at any level.
UNRESOLVED = "unresolved"
#: Maximum number of labels in the name of a learned node.
LISTED_LABELS = 3


@dataclass(frozen=True)
class LabelTree:
    """Nodes with a name and a parent each. The first nodes are the C labels, and the last node is the root."""

    names: tuple[str, ...]
    #: Parent (N,) of every node; the root is its own parent.
    parents: Codes
    n_labels: int
    #: Names of the levels, from coarse to fine, if every label has a node at every level.
    levels: tuple[str, ...] = ()
    #: Whether the tree was learned from the reference.
    learned: bool = False

    @cached_property
    def paths(self) -> Codes:
        """Nodes (N, D) on the path from every node to the root. Short paths are filled up with the root."""
        paths = [np.arange(len(self.names))]
        while (self.parents[paths[-1]] != paths[-1]).any():
            paths.append(self.parents[paths[-1]])
        return np.stack(paths, axis=1)

    @cached_property
    def members(self) -> Mask:
        """Mask (N, C) of the labels below every node."""
        members = np.zeros((len(self.names), self.n_labels), dtype=bool)
        labels = np.arange(self.n_labels)
        members[self.paths[labels], labels[:, None]] = True
        return members

    @cached_property
    def depths(self) -> Codes:
        """Number of steps (N,) from every node to the root."""
        return np.asarray((self.paths != len(self.names) - 1).sum(1))

    @property
    def level_names(self) -> list[str]:
        """Level (N,) of every node: the name of the level, or the number of steps below the root."""
        return [*(self.levels[d - 1] if self.levels else str(d) for d in self.depths[:-1]), UNRESOLVED]

    @property
    def all_levels(self) -> tuple[str, ...]:
        """Names or numbers of the levels, from coarse to fine. A learned tree has no levels."""
        n = 0 if self.learned else int(self.depths.max())
        return self.levels or tuple(map(str, range(1, n + 1)))

    def path(self, node: int) -> list[int]:
        """Return the nodes from this one to the root, including both."""
        return list(dict.fromkeys(self.paths[node].tolist()))

    def at_level(self, depth: int) -> Codes:
        """Return the node (C,) above every label at this depth below the root. Labels at a smaller depth stay."""
        labels = np.arange(self.n_labels)
        return np.asarray(self.paths[labels, np.maximum(self.depths[labels] - depth, 0)])

    @classmethod
    def of(
        cls, labels: Sequence[str], hierarchy: Mapping[str, str], levels: Sequence[str] = (), known: Sequence[str] = ()
    ) -> Self:
        """Return the tree of a mapping from child to parent. Labels without a parent are children of the root.

        The mapping may contain `known` names that are not labels of the tree.
        """
        unknown = sorted(set(hierarchy) - set(labels) - set(hierarchy.values()) - set(known))
        if unknown:
            raise InputError(f"`hierarchy` has {unknown[:5]}, which are neither labels nor parents: check spelling.")
        also = sorted(set(hierarchy.values()) & set(labels))
        if also:
            raise InputError(
                f"The parents {also[:5]} in `hierarchy` are also labels of cells: rename them, or call "
                "dice.tl.transfer_labels with labels_key=dice.Levels(key, hierarchy), which can use such cells."
            )
        paths = {name: _path_up(name, hierarchy) for name in (*labels, *hierarchy)}
        kept = list(dict.fromkeys([*labels, *(name for label in labels for name in paths[label])]))
        number = {name: at for at, name in enumerate(kept)}
        root = len(kept)
        parents = [number[hierarchy[name]] if name in hierarchy else root for name in kept]
        return cls((*kept, _root(kept)), np.array([*parents, root]), len(labels), tuple(levels))

    @classmethod
    def learn(cls, labels: Sequence[str], confusion: Floats) -> Self:
        """Build a tree by joining the labels that are confused most, step by step (average linkage).

        `confusion` (C, C) is the mean probability of each label for cells of each other label.
        """
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import squareform

        n = len(labels)
        alike = (confusion + confusion.T) / 2
        distance = -np.log(np.maximum(alike, 1e-6))
        np.fill_diagonal(distance, 0)
        steps = linkage(squareform(distance - distance[~np.eye(n, dtype=bool)].min(), checks=False), "average")
        parents = np.arange(2 * n - 1)
        for step, (a, b, *_) in enumerate(steps):
            parents[[int(a), int(b)]] = n + step
        members = cls(tuple(map(str, range(2 * n - 1))), parents, n).members
        names = [_joined([labels[int(at)] for at in np.flatnonzero(row)]) for row in members[n:-1]]
        return cls((*labels, *names, _root(labels)), parents, n, learned=True)

    def nodes(self, probabilities: Floats, threshold: float) -> Codes:
        """Return the first node (n,) with a probability above the threshold, from the most likely label to the root."""
        paths = self.paths[probabilities.argmax(1)]
        return _first(paths, self._along(probabilities, paths) > threshold)

    def probability(self, probabilities: Floats, nodes: Codes) -> Floats:
        """Return the probability (n,) of one node (n,) per cell."""
        found = self._along(probabilities, nodes[:, None])[:, 0]
        return np.where(nodes == len(self.names) - 1, 1.0, found)

    def threshold(self, probabilities: Floats, known: Floats, codes: Codes, alpha: float, strength: float) -> float:
        """Return the threshold for an error rate of alpha, by calibration cells or, under a shift, by probabilities.

        `known` (m, C) and `codes` (m,) are probabilities and labels of calibration cells. `strength` is the strength of
        the shift, from 0 (use calibration cells) to 1 (use probabilities).
        """
        calibrated = self.calibrated(known, codes, alpha) if strength < 1 else 0.0
        expected = self.expected(probabilities, alpha) if strength > 0 and len(probabilities) else 0.0
        return (1 - strength) * calibrated + strength * expected

    def calibrated(self, probabilities: Floats, codes: Codes, alpha: float) -> float:
        """Return the threshold with an error rate of at most alpha, for cells exchangeable with calibration cells."""
        paths = self.paths[probabilities.argmax(1)]
        wrong = ~self.members[paths, codes[:, None]]
        # A cell is wrong exactly if the threshold is below the probability of the last wrong node on its path.
        needed = np.sort(np.where(wrong, self._along(probabilities, paths), 0.0).max(1))
        rank = int(np.ceil((len(codes) + 1) * (1 - alpha)))
        return float(needed[rank - 1]) if rank <= len(codes) else 1.0

    def expected(self, probabilities: Floats, alpha: float) -> float:
        """Return the smallest threshold at which the expected error rate of probabilities (n, C) is at most alpha."""
        paths = self.paths[probabilities.argmax(1)]
        along, low, high = self._along(probabilities, paths), 0.0, 1.0
        along[paths == len(self.names) - 1] = 1.0
        for _ in range(40):
            middle = (low + high) / 2
            error = 1 - _first(along, along > middle).mean()
            low, high = (middle, high) if error > alpha else (low, middle)
        return high

    def f1(self, truth: Codes, given: Codes) -> Floats:
        """Return the F1 (N,) of every node for true and predicted labels (n,); NaN for nodes without cells."""
        pairs, members = np.zeros((self.n_labels, self.n_labels)), self.members.astype(float)
        np.add.at(pairs, (truth, given), 1)
        hits, n_true = ((members @ pairs) * members).sum(1), members @ pairs.sum(1)
        return np.where(n_true > 0, 2 * hits / np.maximum(n_true + members @ pairs.sum(0), 1), np.nan)

    def to_plain(self) -> dict[str, Any]:
        """Return the tree as arrays that files can hold."""
        return {
            "node": np.array(self.names, dtype=str),
            "parent": np.array([self.names[parent] for parent in self.parents], dtype=str),
            "level": np.array(self.level_names, dtype=str), "n_labels": self.members.sum(1),
            "levels": np.array(self.levels, dtype=str),
        }  # fmt: skip

    def to_card(self) -> dict[str, Any]:
        """Return the entries for the card of a prior."""
        above = self.parents[:-1] < len(self.names) - 1
        parents = {self.names[node]: self.names[self.parents[node]] for node in np.flatnonzero(above)}
        return {"hierarchy": parents, "levels": list(self.levels)}

    @classmethod
    def from_plain(cls, table: Mapping[str, Any]) -> Self:
        """Return the tree from the arrays of :meth:`to_plain`."""
        names = [str(name) for name in table["node"]]
        number = {name: at for at, name in enumerate(names)}
        parents = np.array([number[str(name)] for name in table["parent"]])
        n_labels = len(set(range(len(names))) - set(parents.tolist()))
        levels, params = tuple(map(str, np.ravel(table.get("levels", ())))), table.get("params", {})
        return cls(tuple(names), parents, n_labels, levels, bool(params.get("learned")))

    def _along(self, probabilities: Floats, paths: Codes) -> Floats:
        """Return the probability (n, D) of every node on the path (n, D) from the label of a cell to the root."""
        return np.stack([(probabilities * self.members[nodes]).sum(1) for nodes in paths.T], axis=1)


def _first(values: Any, above: Mask) -> Any:
    """Return the first value of every row (n, D) at which `above` is True, or else the last value (the root)."""
    above[:, -1] = True
    return np.take_along_axis(values, above.argmax(1)[:, None], axis=1)[:, 0]


def _path_up(name: str, hierarchy: Mapping[str, str]) -> list[str]:
    """Return a name and the names of all nodes above it."""
    path = [name]
    while path[-1] in hierarchy:
        path.append(hierarchy[path[-1]])
        if path[-1] in path[:-1]:
            raise InputError(f"`hierarchy` has a cycle at {path[-1]!r}: a node cannot be above itself.")
    return path


def _root(names: Sequence[str]) -> str:
    return UNRESOLVED if UNRESOLVED not in names else f"{UNRESOLVED} (root)"


def listed(labels: Iterable[str]) -> str:
    """Return several labels as text. Labels that contain a bar are quoted, so that the text is unambiguous."""
    return " | ".join(f'"{label}"' if "|" in label else label for label in labels)


def _joined(labels: Sequence[str]) -> str:
    """Return a name for several labels: all labels or, for many, the first labels, the last label and the number."""
    if len(labels) <= LISTED_LABELS:
        return listed(labels)
    return f"{listed(labels[: LISTED_LABELS - 1])} | ... | {labels[-1]} ({len(labels)} labels)"
