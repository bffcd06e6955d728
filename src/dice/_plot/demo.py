"""The picture of the demonstration: maps before and after, clusters found, labels with their doubt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from anndata import AnnData

from dice._data import read
from dice._data.colors import Colors, read_colors
from dice._keys import ClusterKeys, LabelKeys
from dice._labels.doubt import AMBIGUOUS, CONFIDENT, UNLIKE
from dice._plot import draw
from dice._plot.figure import PANEL, finish, panels
from dice._plot.layout import layout
from dice._plot.names import name_groups
from dice._types import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How the cells of every status look: filled, hollow, and crossed out.
LOOK: dict[str, dict[str, Any]] = {
    CONFIDENT: {"marker": "o"},
    AMBIGUOUS: {"marker": "o", "facecolors": "white", "linewidths": 0.7},
    UNLIKE: {"marker": "x", "linewidths": 0.8},
}


def draw_demo(adata: AnnData, labels_key: str, path: Path) -> None:
    """Draw a query that :func:`dice.tl.annotate` labelled, with its own labels in the first two maps, to a file."""
    keys = LabelKeys(f"{labels_key}_dice")
    options: dict[str, Any] = {"n_neighbors": 15, "random_state": 0}
    before = layout(adata, "X_dice_pca", **options)
    after = layout(adata, "X_dice", neighbors_key=ClusterKeys().uns, **options)
    truth, found = read_colors(adata, labels_key), read_colors(adata, ClusterKeys().cluster)
    given = read_colors(adata, keys.label)
    # A type has the same colour whoever says so.
    shared = {name: (truth.labels or {}).get(name, color) for name, color in (given.labels or {}).items()}
    given = Colors(given.name, given.values, shared)
    status = read.column(adata, keys.status).astype(str).to_numpy()
    figure, axes = panels(4, ncols=2, size=(PANEL + 0.6, PANEL + 0.6), margin=1.6)
    _named(axes[0], before, truth, "before: PCA, the study's own cell types")
    _named(axes[1], after, truth, "after: DICE, the same cells")
    _named(axes[2], after, found, f"{len(found.groups)} clusters found, no resolution chosen")
    _doubted(axes[3], after, given, status)
    finish(figure, axes, show=None, save=path, return_fig=False)


def _named(ax: Axes, where: Floats, colors: Colors, title: str) -> None:
    draw.scatter_colored(ax, where, colors)
    draw.style_map(ax, title=title, n_cells=len(where))
    name_groups(ax, colors.groups, where)


def _doubted(ax: Axes, where: Floats, colors: Colors, status: Any) -> None:
    """Labels in their colours; how sure they are by the look of a point."""
    from matplotlib.lines import Line2D

    size, handles = 1.6 * draw.point_size(len(where)), []
    for zorder, (kind, look) in enumerate(LOOK.items(), start=2):
        own = status == kind
        share = f"{kind} ({own.mean():.0%})"
        hollow = "facecolors" in look
        handles.append(
            Line2D([], [], linestyle="", marker=look["marker"], color="black", label=share,
                   markerfacecolor="white" if hollow else "black")
        )  # fmt: skip
        for _, color, cells in colors.groups:
            shade = {"edgecolors": color} if hollow else {"color": color}
            draw.scatter(ax, where[cells & own], label=kind, size=size, zorder=zorder, **look, **shade)
    draw.style_map(ax, title="labels from the reference, and their doubt", n_cells=len(where))
    name_groups(ax, colors.groups, where)
    draw.add_legend(ax, handles)
