"""The tree of clusters, their map, and the confidence of every cell."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from anndata import AnnData

from dice._arguments import said
from dice._clusters.separation import MOST_SEPARATE, separation
from dice._clusters.tree import MARKER_COLUMNS, Cut, Tree, stored_cut
from dice._data import read
from dice._data.colors import read_colors, read_numbers
from dice._data.graph import layout
from dice._errors import InputError
from dice._keys import ClusterKeys
from dice._plot import Axes, Drawn, draw, panels, plot

TREE_STEP = "dice.tl.cluster"
#: Colour of branches, and ticks of the upper axis as shares of cells.
BRANCH, SHARES = "#555555", (0.75, 0.92, 0.99, 0.9999)
#: Maximum number of genes on a branch.
BRANCH_GENES = 3
#: Number of letters that fit on an inch of a branch.
LETTERS = 18
#: Style of gene names on a branch, and the height of a row with gene names in inches.
PAPER = {"boxstyle": "square,pad=0", "facecolor": "white", "edgecolor": "none"}
GENES: dict[str, Any] = {"fontsize": 6, "color": "#222222", "zorder": 5, "bbox": PAPER}
GENE_ROW = 0.34


@plot
def clusters(adata: AnnData, *, key: str = "dice_cluster", markers: pd.DataFrame | None = None) -> Drawn:
    """Draw the tree of clusters, the clusters on the map, and the confidence of every cell.

    The tree has one row for each cluster. A merge is drawn at the separation of its two parts. The upper axis shows the
    share of cells that a second measurement would place in the same part again. The dotted line is the cut. The
    counts of a cell are split into halves several times. The confidence of the cell is the share of these halves that
    are placed in its cluster.

    Parameters
    ----------
    adata
        Cells after :func:`dice.tl.cluster`.
    key
        Key of the clusters.
    markers
        Genes from :func:`dice.tl.cluster_markers`. The branch of each side of a split shows its first genes with an
        adjusted p-value below 0.05: three, or as many as fit.
    show, save, return_fig
        As in scanpy: whether to show the figure, a file to save it to, and whether to return it. None shows the figure
        if the backend can show figures.

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Also sets the coordinates as
    :func:`dice.pl.comparison` does, unless `adata` is a view: ``adata.obsm[f"{use_rep}_umap"]`` (n_obs, 2) float32 and
    ``adata.uns[f"{use_rep}_umap"]``.

    Examples
    --------
    >>> import anndata, dice, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> profiles = 3 * rng.gamma(0.3, size=(4, 300))
    >>> cells = anndata.AnnData(rng.poisson(profiles[np.arange(400) % 4]).astype("float32"))
    >>> dice.tl.cluster(cells)
    >>> figure = dice.pl.clusters(cells, markers=dice.tl.cluster_markers(cells), return_fig=True)
    >>> len(figure.axes)
    3
    """
    keys = ClusterKeys(key)
    record = read.record(adata, keys.uns, what="tree of clusters", step=TREE_STEP)
    cut, colors = stored_cut(record), read_colors(adata, keys.cluster, step=TREE_STEP)
    named = [group for group in colors.groups if group[0] in colors.names]
    sure = read_numbers(adata, keys.confidence, step=TREE_STEP)
    where = layout(adata, record["params"]["use_rep"])
    height = max(draw.side(len(named)), 0 if markers is None else GENE_ROW * len(named))
    figure, axes = panels(3, widths=[height] * 3, height=height)
    _tree(axes[0], cut, colors.labels or {}, _first_genes(markers), LETTERS * height)
    draw.scatter_colored(axes[1], where, colors)
    counted = f"{len(named)} cluster{'' if len(named) == 1 else 's'}"
    draw.style_map(axes[1], title=counted, n_cells=len(where))
    # Write names on the map, not in a legend: even sixty names can be told apart there.
    draw.name_groups(axes[1], named, where)
    draw.row([axes[2]], sure, [("halves of a cell in its cluster", where)])
    axes[2].collections[-1].set_clim(0, 1)
    return figure, axes


def _first_genes(markers: Any) -> dict[tuple[str, str], list[str]]:
    """Return the first marker genes of each side of a split, keyed by the names of this side and the other side."""
    if markers is None:
        return {}
    if not {*MARKER_COLUMNS} <= set(getattr(markers, "columns", ())):
        raise InputError(f"`markers` must be a table from dice.tl.cluster_markers, got {said(markers)}.")
    known = markers[(markers["pvals_adj"] < 0.05) & (markers["scores"] > 0)]
    sides = known.groupby(["group", "reference"], sort=False)["names"]
    return {side: list(names[:BRANCH_GENES]) for side, names in sides}


def _fitting(names: list[str], letters: float) -> str:
    """Return the longest start of `names` that fits into the number of letters."""
    texts = [", ".join(names[:n]) for n in range(len(names) + 1)]
    return [text for text in texts if len(text) <= letters][-1]


def _tree(
    ax: Axes, cut: Cut, inks: Mapping[str, str], genes: Mapping[tuple[str, str], list[str]], letters: float
) -> None:
    """Draw the merges above a cut at the separation of their parts, with the genes of each part.

    `letters` is the number of letters that fit on a branch over the whole width.
    """
    tree, names = cut.tree, cut.node_names
    rows = _from_left(tree, tree.n_leaves + len(tree.joined) - 1, set(cut.nodes))
    place = {node: (float(row), 0.0) for row, node in enumerate(rows)}
    top = MOST_SEPARATE + 0.5
    for i, pair in enumerate(tree.joined.tolist()):
        if not set(pair) <= place.keys():
            continue
        (y1, x1), (y2, x2) = (place[node] for node in pair)
        x, y = min(float(tree.separation[i]), top), (y1 + y2) / 2
        ax.plot([x1, x, x, x2], [y1, y1, y2, y2], color=BRANCH, linewidth=1.2, solid_joinstyle="miter")
        place[tree.n_leaves + i] = y, x
        for (begin, at), (node, other) in zip(((x1, y1), (x2, y2)), (pair, pair[::-1]), strict=True):
            # Genes of clusters begin at the left and genes of larger branches end at the right, to keep them apart.
            end, offset, to = (x, -2, "right") if begin else (0.0, 6, "left")
            text = _fitting(genes.get((names[node], names[other]), []), (x - begin) / top * letters)
            ax.annotate(text, (end, at), (offset, 1), textcoords="offset points", ha=to, va="bottom", **GENES)
    ax.set_yticks(range(len(rows)), [names[node] for node in rows], fontsize=8)
    for node in rows:
        ax.plot(0, place[node][0], marker="o", color=inks.get(names[node], BRANCH), clip_on=False, zorder=4)
    ax.axvline(float(separation(cut.level)), color="black", linestyle=":", linewidth=1)
    ax.set(xlim=(0, top), ylim=(len(rows) - 0.5, -0.5), box_aspect=1)
    ax.set(xlabel="separation of the parts of a merge", ylabel="cluster")
    above = ax.secondary_xaxis("top")
    above.set_xticks([float(separation(share)) for share in SHARES], [f"{share:.4g}" for share in SHARES], fontsize=8)
    above.set_xlabel("share of cells placed alike")
    above.spines["top"].set_visible(True)


def _from_left(tree: Tree, node: int, ends: set[int]) -> list[int]:
    """Return the end nodes below a node. Larger parts come first, and branches do not cross."""
    if node in ends or node < tree.n_leaves:
        return [node]
    children = sorted(tree.joined[node - tree.n_leaves].tolist(), key=tree.size, reverse=True)
    return [end for child in children for end in _from_left(tree, child, ends)]
