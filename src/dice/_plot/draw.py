"""Maps of cells: points, frame, legend and colour bar for all plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dice._data.colors import MISSING, REFERENCE, SAFE, SEQUENTIAL, UNASSIGNED, Colors
from dice._data.graph import MIN_CELLS_UMAP
from dice._plot.figure import MANY, Axes, name_groups, outermost, side
from dice._types import Codes, Floats, Mask

#: Titles of representations.
TITLES = {"X_dice_pca": "PCA projection", "X_dice": "DICE"}
#: Style of a line that marks a value.
MARK: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1}
ROWS_PER_LEGEND_COLUMN = 16


def point_size(n_cells: int, size: float | None = None) -> float:
    """Return the area of a point: the given one, or one that fits the number of cells."""
    return float(np.clip(10_000 / max(n_cells, 1), 1.5, 20)) if size is None else size


def scatter(ax: Axes, where: Floats, *, label: str, size: float, zorder: int, **kwargs: Any) -> Any:
    """Draw points, without edges by default, and as an image, because vector formats grow with every point."""
    look: dict[str, Any] = {"linewidths": 0, "rasterized": True} | kwargs
    return ax.scatter(where[:, 0], where[:, 1], s=size, label=label, zorder=zorder, **look)


def scatter_reference(ax: Axes, where: Floats, *, label: str = "reference") -> Any:
    """Draw the reference in grey."""
    return scatter(ax, where, label=label, size=point_size(len(where)), zorder=1, color=REFERENCE)


def scatter_colored(
    ax: Axes, where: Floats, colors: Colors | None, *, size: float | None = None, alpha: float | None = None
) -> Any:
    """Draw cells in their colours. Cells without a value are below the others, high values on top."""
    look: dict[str, Any] = {"size": point_size(len(where), size), "alpha": alpha}
    if colors is None:
        return scatter(ax, where, label="cells", zorder=3, color=SAFE[0], **look)
    if colors.missing.any():
        scatter(ax, where[colors.missing], label="NA", zorder=2, color=MISSING, **look)
    known = np.flatnonzero(~colors.missing)
    if colors.labels is not None:
        # In file order, one label would cover another if labels come in blocks.
        known = np.random.default_rng(0).permutation(known)
        look |= {"color": colors.rgb(known)}
    else:
        known = known[np.argsort(colors.values[known], kind="stable")]
        look |= {"c": colors.values[known], "cmap": SEQUENTIAL}
    return scatter(ax, where[known], label=colors.name, zorder=3, **look)


def row(
    axes: list[Axes],
    colors: Colors | None,
    maps: list[tuple[str, Floats]],
    ground: Floats | None = None,
) -> None:
    """Draw maps with titles in the same colours, over the reference at `ground`, and a legend beside them.

    If there are many labels, they are named on the maps instead.
    """
    for ax, (title, where) in zip(axes, maps, strict=True):
        if ground is not None:
            scatter_reference(ax, ground)
        points = scatter_colored(ax, where, colors)
        style_map(ax, title=title, n_cells=len(where if ground is None else ground))
    for ax, (_, where) in zip(axes, maps, strict=True):
        name_groups(ax, named_on_map(colors), where)
    numbers = colors is not None and colors.labels is None
    if colors is not None and numbers:
        add_colorbar(outermost(axes), points, label=colors.name)
    title = "" if colors is None or numbers or named_on_map(colors) else colors.name
    shown = legend_of(colors) | ({} if ground is None else {"reference": REFERENCE})
    add_legend(outermost(axes), dots(shown), title=title, low=numbers)


def named_on_map(colors: Colors | None) -> list[tuple[str, str, Mask]]:
    """Return the groups (name, colour, cells) that are named on the map: all if there are many, else none."""
    # Unassigned cells are everywhere, so their name has no good place.
    unnamed = ("NA", UNASSIGNED)
    named = [] if colors is None else [group for group in colors.groups if group[0] not in unnamed]
    return named if len(named) > MANY else []


def map_size(colors: Colors | None) -> tuple[float, float]:
    """Return the width and height of a map in inches."""
    return (side(len(named_on_map(colors))),) * 2


def legend_of(colors: Colors | None) -> dict[str, str]:
    """Return the colours of the names in the legend: labels that are not named on the map."""
    named = {name for name, *_ in named_on_map(colors)}
    return {} if colors is None else {name: ink for name, ink in colors.legend.items() if name not in named}


def style_map(ax: Axes, *, title: str, n_cells: int) -> None:
    """Make a square panel without ticks, because distances on the map have no unit."""
    axis = "UMAP" if n_cells >= MIN_CELLS_UMAP else "latent"
    ax.set(title=title, xticks=[], yticks=[], box_aspect=1)
    ax.set_xlabel(f"{axis} 1", loc="left")
    ax.set_ylabel(f"{axis} 2", loc="bottom")


def name_rows(ax: Axes, names: Sequence[str], *, edge: float = 0.5) -> Codes:
    """Name the rows, the first at the top, and return their heights."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 1 + edge, -edge)
    return np.arange(len(names))


def dots(colors: dict[str, str]) -> list[Any]:
    """Return legend entries: one dot per label."""
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 6}
    return [Line2D([], [], color=color, label=label, **look) for label, color in colors.items()]


def add_legend(ax: Axes, handles: Sequence[Any] | None = None, *, title: str = "", low: bool = False) -> None:
    """Add a legend to the right of a panel, or with `low` below its colour bar. The default has all labelled items."""
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    if not handles:
        return
    look: dict[str, Any] = {"alignment": "left", "handlelength": 1.2, "handletextpad": 0.4, "columnspacing": 1.0}
    ncols = math.ceil(len(handles) / ROWS_PER_LEGEND_COLUMN)
    look |= {"loc": "lower left" if low else "center left", "bbox_to_anchor": (1.02, 0.0 if low else 0.5)}
    ax.legend(handles=list(handles), title=title, ncols=ncols, frameon=False, **look)


def add_colorbar(ax: Axes, points: Any, *, label: str = "") -> None:
    """Add a colour bar to the right of a panel."""
    bar = ax.figure.colorbar(points, cax=ax.inset_axes((1.05, 0.15, 0.04, 0.7)))
    bar.outline.set_visible(False)
    bar.set_label(label)
