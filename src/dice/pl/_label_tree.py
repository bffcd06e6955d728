"""The tree of labels: how many cells have their safe label at each node, and how well nodes are told apart."""

from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._data import read
from dice._data.colors import SEQUENTIAL
from dice._keys import LabelKeys, SafeKeys
from dice._labels.tree import LabelTree
from dice._plot import Axes, Drawn, panels, plot
from dice._types import Codes, Floats

#: Inches per label and per level, the area of the largest node in square points, and the colour of branches.
_PER_LABEL, _PER_LEVEL, _LARGEST, _INK = 0.24, 1.5, 260.0, "#555555"


@plot
def label_tree(adata: AnnData, labels_key: str, *, truth_key: str | None = None, key: str | None = None) -> Drawn:
    """Draw the tree of labels.

    The area of a node shows the number of cells with this safe label. The colour of a node shows its F1; nodes without
    F1 are white.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.transfer_labels` or :func:`dice.tl.safe_labels`.
    labels_key
        Column of the reference whose labels were transferred.
    truth_key
        Column of ``obs`` with known labels, to compute the F1. None shows the F1 on held-out reference cells.
    key
        Key of the transferred labels. None uses ``f"{labels_key}_dice"``.
    show, save, return_fig
        As in scanpy: whether to show the figure, a file to save it to, and whether to return it. None shows the figure
        if the backend can show figures.

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Writes nothing.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    >>> dice.tl.transfer_labels(query, reference, "cell_type")
    >>> figure = dice.pl.label_tree(query, "cell_type", return_fig=True)
    >>> [text.get_text().split(" (")[0] for text in figure.axes[0].get_yticklabels()]
    ['Cluster 1', 'Cluster 2']
    """
    keys = SafeKeys(f"{labels_key}_dice" if key is None else key)
    tree, nodes, record = read.read_safe(adata, keys)
    f1, who = np.asarray(record["f1"], dtype=float), "held-out reference cells"
    if truth_key is not None:
        values = (read.column(adata, name, argument="truth_key") for name in (truth_key, LabelKeys(keys.key).label))
        labels = pd.Index(tree.names[: tree.n_labels])
        truth, given = (labels.get_indexer(column.astype(str)) for column in values)
        known, who = (truth >= 0) & (given >= 0), "known labels"
        f1 = tree.f1(truth[known], given[known])
    # Sort labels so that those below a node are adjacent. Branches then do not cross.
    rows, depth = sorted(range(tree.n_labels), key=lambda label: tree.path(label)[::-1]), int(tree.depths.max())
    width, height = _PER_LEVEL * min(depth, 8), max(_PER_LABEL * len(rows), 2.0)
    figure, (ax,) = panels(1, widths=width, height=height, square=False)
    points = _draw(ax, tree, rows, np.bincount(nodes, minlength=len(tree.names)), f1)
    ax.set_title(f"safe labels of {len(nodes):,} cells")
    figure.colorbar(points, ax=ax, fraction=0.03, pad=0.02).set_label(f"F1 of {who}")
    return figure, [ax]


def _draw(ax: Axes, tree: LabelTree, rows: list[int], n_cells: Codes, f1: Floats) -> Any:
    """Draw branches, nodes and names. Labels are at the right, the root at the left."""
    height = np.zeros(tree.n_labels)
    height[rows] = np.arange(len(rows))
    y = np.array([height[members].mean() for members in tree.members])
    x = np.where(np.arange(len(y)) < tree.n_labels, tree.depths.max(), tree.depths).astype(float)
    for node, parent in enumerate(tree.parents[:-1]):
        ax.plot([x[parent], x[parent], x[node]], [y[parent], y[node], y[node]], color=_INK, linewidth=1, zorder=1)
    area, some = np.maximum(_LARGEST * n_cells / max(n_cells.max(), 1), 12), n_cells > 0
    ax.scatter(x, y, s=8, color=_INK, zorder=2)
    points = ax.scatter(x[some], y[some], s=area[some], c=f1[some], cmap=SEQUENTIAL, vmin=0, vmax=1,
                        edgecolors="black", linewidths=0.6, zorder=3, plotnonfinite=True)  # fmt: skip
    points.cmap = points.get_cmap().with_extremes(bad="white")
    for node in np.flatnonzero(tree.members.sum(1) > 1).tolist():
        # Learned nodes are drawn without a name, because their names only list the labels beside them.
        name = "" if tree.learned and node < len(y) - 1 else f"{tree.names[node]} "
        text = f"{name}({n_cells[node]:,})" if n_cells[node] else name
        away, side = ((0, 12), "center") if node == len(y) - 1 else ((-6, 3), "right")
        ax.annotate(text, (x[node], y[node]), away, textcoords="offset points", ha=side, fontsize=7, zorder=4)
    ax.set_yticks(range(len(rows)), [f"{tree.names[label]} ({n_cells[label]:,})" for label in rows], fontsize=8)
    ax.yaxis.tick_right()
    ax.set_xticks(range(1, len(tree.levels) + 1), tree.levels)
    ax.set(xlim=(-0.35, x.max() + 0.15), ylim=(len(rows) - 0.4, -0.8))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return points
