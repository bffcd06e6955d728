"""Tree of clusters: fine clusters are joined pair by pair, the least separate pair first. A cut gives the clusters."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice._arguments import is_number
from dice._clusters.separation import CONTINUUM, TESTABLE, agreement, separation
from dice._errors import InputError, SlotError
from dice._types import Codes, Floats

#: Columns of a table of marker genes, as of :func:`scanpy.get.rank_genes_groups_df`.
MARKER_COLUMNS = ("group", "reference", "names", "scores", "logfoldchanges", "pvals", "pvals_adj")


@dataclass(frozen=True)
class Tree:
    """Tree of merges of `n_leaves` fine clusters.

    Merge i joins the two nodes ``joined[i]`` into node ``n_leaves + i``, as in scipy's linkage; `joined` is (m, 2).
    `separation` (m,) ascends. It is infinite for clusters that no edge connects and that have too few cells for a test.
    """

    n_leaves: int
    joined: NDArray[np.intp]
    separation: Floats
    #: Number of cells of every leaf.
    sizes: Floats

    def size(self, node: int) -> float:
        return float(self.sizes[self.leaves(node)].sum())

    def cut(self, least: float) -> list[int]:
        """Return the nodes that remain after all merges below a separation, from the largest to the smallest."""
        made = int(np.searchsorted(self.separation, least))
        inner = set(self.joined[:made].ravel().tolist())
        nodes = [node for node in range(self.n_leaves + made) if node not in inner]
        return sorted(nodes, key=lambda node: (-self.size(node), node))

    def leaves(self, node: int) -> list[int]:
        """Return the leaves below a node."""
        if node < self.n_leaves:
            return [node]
        return [leaf for child in self.joined[node - self.n_leaves] for leaf in self.leaves(int(child))]

    def members(self, nodes: list[int]) -> Codes:
        """Return the position in `nodes` (n_leaves,) of the node above every leaf, or -1 without such a node."""
        codes = np.full(self.n_leaves, -1, dtype=np.intp)
        for position, node in enumerate(nodes):
            codes[self.leaves(node)] = position
        return codes

    def names(self, least: float) -> list[str]:
        """Return the names of all nodes. The names do not depend on the cut that is shown.

        Nodes of the cut at separation `least` are numbered from the largest to the smallest. A node below this cut has
        the name of its parent with ``.1`` for the larger part and ``.2`` for the smaller part. A node above this cut
        has the names of the clusters that it joins, for example ``0+3``.
        """
        names = {node: str(rank) for rank, node in enumerate(self.cut(least))}
        made = int(np.searchsorted(self.separation, least))
        for i in reversed(range(made)):
            children = sorted(self.joined[i].tolist(), key=lambda node: (-self.size(node), node))
            names |= {child: f"{names[self.n_leaves + i]}.{rank}" for rank, child in enumerate(children, 1)}
        for i in range(made, len(self.joined)):
            parts = [part for child in self.joined[i] for part in names[int(child)].split("+")]
            names[self.n_leaves + i] = "+".join(sorted(parts, key=int))
        return [names[node] for node in sorted(names)]


def grow(codes: Codes, graph: sparse.csr_matrix, apart: Callable[[Codes, Codes], float]) -> Tree:
    """Join fine clusters (n,) until one cluster is left. Each step joins the pair with the smallest separation.

    ``apart(cells, cells)`` returns the separation of two clusters. Clusters that are connected by edges of the `graph`
    (n, n) are compared first. When these are joined, the remaining pairs are also compared, because cells of one type
    may have no edges if their depths differ.
    """
    n_leaves = int(codes.max()) + 1
    cells = {code: np.flatnonzero(codes == code) for code in range(n_leaves)}
    member = sparse.csr_matrix((np.ones(len(codes)), (np.arange(len(codes)), codes)), shape=(len(codes), n_leaves))
    weight = np.zeros((2 * n_leaves - 1,) * 2)
    weight[:n_leaves, :n_leaves] = (member.T @ graph @ member).toarray()
    connected = True
    joined: list[tuple[int, int]] = []
    levels: list[float] = []

    def compared(pairs: Iterable[tuple[int, int]]) -> dict[tuple[int, int], float]:
        def is_due(one: int, other: int) -> bool:
            return weight[one, other] > 0 or (not connected and min(len(cells[one]), len(cells[other])) >= TESTABLE)

        return {pair: apart(*(cells[one] for one in pair)) for pair in pairs if is_due(*pair)}

    def order(pair: tuple[int, int]) -> tuple[float, float, tuple[int, int]]:
        # Clusters of a few cells have separation 0 from all others. They join the cluster with the most edges to them.
        return found.get(pair, np.inf), -weight[pair] / min(len(cells[one]) for one in pair), pair

    found = compared(combinations(range(n_leaves), 2))
    while len(cells) > 1:
        if not found and connected:
            connected = False
            found = compared(combinations(sorted(cells), 2))
        pair = first, second = min(found or combinations(sorted(cells), 2), key=order)
        new = n_leaves + len(joined)
        joined.append(pair)
        # A joined cluster may be closer to a neighbour than its parts were. Separations must ascend nevertheless.
        levels.append(max([found.get(pair, np.inf), *levels[-1:]]))
        cells[new] = np.sort(np.concatenate([cells.pop(first), cells.pop(second)]))
        weight[new] = weight[first] + weight[second]
        weight[:, new] = weight[new]
        found = {pair: value for pair, value in found.items() if first not in pair and second not in pair}
        found |= compared((one, new) for one in cells if one != new)
    sizes = np.bincount(codes).astype(np.float64)
    return Tree(n_leaves, np.array(joined, dtype=np.intp).reshape(-1, 2), np.array(levels), sizes)


Level: TypeAlias = Literal["fine", "default", "coarse"] | float
#: Levels of a cut: the share of cells of any two clusters that a second measurement would place in the same cluster
#: again. The default, .92, is the share for the two halves of an even continuum.
CUT_LEVELS = {"fine": 0.85, "default": float(agreement(CONTINUUM)), "coarse": 0.99}


def level_of(level: Any) -> float:
    """Return the `level` of a cut as a number. A name stands for a number in `CUT_LEVELS`."""
    value = CUT_LEVELS.get(level, 0.0) if isinstance(level, str) else level
    if not is_number(value) or not 0.5 < value < 1:
        raise InputError(f"`level` must be 'fine', 'default', 'coarse' or a number between 0.5 and 1, got {level!r}.")
    return float(value)


@dataclass(frozen=True)
class Cut:
    """The clusters of a tree at a level of agreement."""

    tree: Tree
    level: float
    #: Whether the repeated measurements are halves of counts. Otherwise they are posterior samples.
    measured: bool = True
    #: Leaves that hold cells; None if all leaves hold cells. A subset of the cells keeps the tree of all cells.
    filled: frozenset[int] | None = None

    @cached_property
    def nodes(self) -> list[int]:
        """Nodes of the tree that are clusters, from the largest to the smallest."""
        return self.tree.cut(float(separation(self.level)))

    @cached_property
    def shown(self) -> list[int]:
        """Clusters that hold cells."""
        return [node for node in self.nodes if self._holds_cells(node)]

    def _holds_cells(self, node: int) -> bool:
        return self.filled is None or not self.filled.isdisjoint(self.tree.leaves(node))

    @cached_property
    def node_names(self) -> list[str]:
        """Names of all nodes."""
        return self.tree.names(CONTINUUM)

    @property
    def names(self) -> list[str]:
        """Names of the clusters."""
        return [self.node_names[node] for node in self.shown]

    def place(self, leaves: NDArray[np.integer]) -> tuple[Codes, Floats]:
        """Return the cluster (n,) of every cell, and the share (n,) of its halves that are in the same cluster.

        `leaves` (n, 1 + halves) holds the leaf of every cell, then the leaves of its halves. A cell with leaf -1 has
        the cluster -1, which means no cluster.
        """
        placed = np.append(self.tree.members(self.shown), -1)[np.asarray(leaves)]
        kept = (placed[:, 1:] == placed[:, :1]).mean(1)
        return placed[:, 0], np.where(placed[:, 0] >= 0, kept, np.nan)

    @cached_property
    def closest(self) -> int | None:
        """Number of the first merge above the cut or, with one cluster, of the last merge. None without merges."""
        merges = [i for i, pair in enumerate(self.tree.joined.tolist()) if all(map(self._holds_cells, pair))]
        return merges[-max(len(self.shown) - 1, 1)] if merges else None

    @property
    def agreement(self) -> float:
        """Agreement on the two closest clusters or, if there is only one cluster, on its two parts."""
        return 0.5 if self.closest is None else float(agreement(self.tree.separation[self.closest]))

    @property
    def why(self) -> str:
        """Sentence with the number of clusters and the reason for this number."""
        second = "a second measurement" if self.measured else "posterior samples"
        if self.closest is None:
            return "All cells are one cluster, which the tree does not divide."
        if len(self.shown) <= 1:
            return (
                f"All cells are one cluster: if it is cut in two, {second} would place only "
                f"{self.agreement:.0%} of the cells in the same part, and clusters need {100 * self.level:.3g}%."
            )
        closest = " and ".join(self.node_names[node] for node in self.tree.joined[self.closest])
        return (
            f"{len(self.shown)} clusters: for any two of them, {second} would place at least {self.agreement:.0%} of "
            f"the cells in the same cluster again ({100 * self.level:.3g}% needed); the closest two are {closest}."
        )

    def record(self) -> dict[str, Any]:
        """Return the tree and its cut as plain arrays for ``.uns``."""
        tree, n_clusters = self.tree, len(self.shown)
        choice = {"n_clusters": n_clusters, "why": self.why, "level": self.level, "agreement": self.agreement}
        stored = {"joined": tree.joined, "separation": tree.separation, "agreement": agreement(tree.separation)}
        stored |= {"sizes": tree.sizes, "names": np.array(self.node_names, dtype=str)}
        return {"choice": choice | {"measured": self.measured}, "tree": stored}


def stored_cut(record: Any, level: float | None = None, leaves: NDArray[np.integer] | None = None) -> Cut:
    """Read a tree and its cut from ``.uns``, or cut the tree at another `level`.

    `leaves` (n,) has the leaf of every cell to place. The cells may be a subset of the cells of the tree.
    """
    if not isinstance(record, Mapping) or "tree" not in record:
        raise SlotError("This record in adata.uns holds no tree of clusters: run dice.tl.cluster first.")
    stored, choice = record["tree"], record["choice"]
    sizes, separations = (np.asarray(stored[name], dtype=np.float64) for name in ("sizes", "separation"))
    tree = Tree(len(sizes), np.asarray(stored["joined"], dtype=np.intp).reshape(-1, 2), separations, sizes)
    filled = None
    if leaves is not None:
        held = np.bincount(leaves[leaves >= 0], minlength=len(sizes))
        if len(held) > len(sizes) or (held > sizes).any():
            raise SlotError("The stored tree of clusters belongs to other cells: call dice.tl.cluster without `level`.")
        filled = frozenset(leaves.tolist())
    return Cut(tree, float(choice["level"]) if level is None else level, bool(choice["measured"]), filled)
