"""Parts of maps of cells that all plots share: points, frame, legend, colour bar and names of groups."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.lines import Line2D

from dice._data.colors import MISSING, REFERENCE, SAFE, SEQUENTIAL, UNASSIGNED, Colors
from dice._data.graph import MIN_CELLS_UMAP
from dice._model.arrays import subsample
from dice._plot import PANEL, Axes, outermost
from dice._types import Codes, Floats, Mask

#: Titles of representations.
TITLES = {"X_dice_pca": "PCA projection", "X_dice": "DICE"}
#: Style of lines that mark a value.
MARK: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1}
ROWS_PER_LEGEND_COLUMN = 16
#: With more groups than this, names are on the map instead of in a legend. A legend with two columns of long names
#: would be as wide as a panel. The value was chosen by looking at plots.
MANY = 20
#: Width and height of a letter as shares of the font size, estimated for bold DejaVu, the font of matplotlib.
LETTER, LINE = 0.7, 1.25
#: Cost of a name that covers all cells, cost of overlapping names, and gap between names as a share of the map. A name
#: as far from its group as the map is wide costs 1. Chosen by looking at maps of 37 and 60 groups.
COVERED, CROSSED, GAP = 2.0, 5e3, 0.01
#: Number of places to try along each side of the map, number of cells to count as covered, and length of short names.
PLACES, POINTS, SHORT = 48, 400, 3


def point_size(n_cells: int) -> float:
    """Return an area of points that fits the number of cells."""
    return float(np.clip(10_000 / max(n_cells, 1), 1.5, 20))


def scatter(ax: Axes, where: Floats, *, label: str, size: float, zorder: int, **kwargs: Any) -> Any:
    """Draw points, by default without edges. They are rasterised, because vector files grow with every point."""
    look: dict[str, Any] = {"linewidths": 0, "rasterized": True} | kwargs
    return ax.scatter(where[:, 0], where[:, 1], s=size, label=label, zorder=zorder, **look)


def scatter_reference(ax: Axes, where: Floats, *, label: str = "reference") -> Any:
    """Draw the reference in grey."""
    return scatter(ax, where, label=label, size=point_size(len(where)), zorder=1, color=REFERENCE)


def scatter_colored(ax: Axes, where: Floats, colors: Colors | None, *, alpha: float | None = None) -> Any:
    """Draw cells in their colours. High values are on top, and cells without a value are below all other cells."""
    look: dict[str, Any] = {"size": point_size(len(where)), "alpha": alpha}
    if colors is None:
        return scatter(ax, where, label="cells", zorder=3, color=SAFE[0], **look)
    if colors.missing.any():
        scatter(ax, where[colors.missing], label="NA", zorder=2, color=MISSING, **look)
    known = np.flatnonzero(~colors.missing)
    if colors.labels is not None:
        # The order is random: in file order, labels that come in blocks would cover each other.
        known = np.random.default_rng(0).permutation(known)
        look |= {"color": np.array([*colors.labels.values()])[colors.codes[known]]}
    else:
        known = known[np.argsort(colors.values[known], kind="stable")]
        look |= {"c": colors.values[known], "cmap": SEQUENTIAL}
    return scatter(ax, where[known], label=colors.name, zorder=3, **look)


def row(axes: list[Axes], colors: Colors | None, maps: list[tuple[str, Floats]], ground: Floats | None = None) -> None:
    """Draw a row of maps (title, coordinates) in the same colours, and a legend beside them.

    The reference, with coordinates `ground`, is drawn below the cells. Many labels are named on the maps instead of in
    a legend.
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
    """Return the groups (name, colour, cells) to name on the map: all groups if there are many, otherwise none."""
    # Unassigned cells are everywhere, so their name has no good place.
    unnamed = ("NA", UNASSIGNED)
    named = [] if colors is None else [group for group in colors.groups if group[0] not in unnamed]
    return named if len(named) > MANY else []


def legend_of(colors: Colors | None) -> dict[str, str]:
    """Return names and colours of the labels for the legend: labels that are not named on the map."""
    named = {name for name, *_ in named_on_map(colors)}
    return {} if colors is None else {name: ink for name, ink in colors.legend.items() if name not in named}


def style_map(ax: Axes, *, title: str, n_cells: int) -> None:
    """Make a panel square and remove its ticks, because distances on a map have no unit."""
    axis = "UMAP" if n_cells >= MIN_CELLS_UMAP else "latent"
    ax.set(title=title, xticks=[], yticks=[], box_aspect=1)
    ax.set_xlabel(f"{axis} 1", loc="left")
    ax.set_ylabel(f"{axis} 2", loc="bottom")


def name_rows(ax: Axes, names: Sequence[str], *, edge: float = 0.5) -> Codes:
    """Name the rows of a panel, the first at the top, and return their positions on the y axis."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 1 + edge, -edge)
    return np.arange(len(names))


def dots(colors: dict[str, str], **style: Any) -> list[Any]:
    """Return legend entries: one dot per label, or another marker or line by its `style`."""
    look: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 6} | style
    return [Line2D([], [], color=color, label=label, **look) for label, color in colors.items()]


def add_legend(ax: Axes, handles: Sequence[Any] | None = None, *, title: str = "", low: bool = False) -> None:
    """Add a legend of `handles` (default: all labelled items) at the right of a panel; `low` is below a colour bar."""
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


def side(n_groups: int) -> float:
    """Return the side of a map in inches. A map with more names of groups is larger."""
    return PANEL if n_groups <= MANY else PANEL + min(n_groups / 20, 2.5)


def name_groups(
    ax: Axes, groups: Sequence[tuple[str, str, Mask]], where: Floats, *, zorder: float = 5, ink: str = "black"
) -> None:
    """Write the name of every group (name, colour, cells) on or beside the middle of the group, without overlaps.

    Call this when the limits of the panel are final.
    """
    if not groups:
        return
    ax.autoscale_view()
    # Convert data coordinates to shares of the panel.
    shares = ax.transData - ax.transAxes
    starts = shares.transform([_middle(where[cells]) for *_, cells in groups])
    size = 9 if len(groups) <= MANY else 7 if len(groups) <= 40 else 6
    half = size / 144 / side(len(groups)) * np.array([(LETTER * len(name), LINE) for name, *_ in groups])
    # Short names, such as cluster numbers, hide few cells and stay on their group.
    short = all(len(name) <= SHORT for name, *_ in groups)
    placed = starts if short else place_boxes(starts, half, shares.transform(subsample(where, POINTS)))
    look: dict[str, Any] = {"fontsize": size, "fontweight": "bold", "color": ink, "ha": "center", "va": "center"}
    look |= {"path_effects": [patheffects.withStroke(linewidth=2, foreground="white")], "zorder": zorder}
    for (name, color, _), start, at, reach in zip(groups, starts, placed, half, strict=True):
        line = np.stack([start, np.clip(start, at - reach, at + reach)], axis=1)
        ax.plot(*line, color=color, linewidth=1.0, zorder=zorder - 0.5, transform=ax.transAxes)
        x, y = shares.inverted().transform(at)
        ax.text(x, y, name, **look)


def _middle(own: Floats) -> Floats:
    """Return the place of the cell nearest to the median. The median itself may lie between two parts of a group."""
    return own[np.square(own - np.median(own, axis=0)).sum(1).argmin()]


def place_boxes(centres: Floats, half: Floats, points: Floats) -> Floats:
    """Return centres (n, 2) for boxes in the unit square. Each is near the wanted centre in `centres` (n, 2).

    `half` (n, 2) holds half of the width and height of every box. Boxes are placed one after the other, each at the
    place with the smallest cost. The cost is the distance to the wanted centre, plus a cost for covered `points` (m, 2)
    and a large cost for overlapping boxes.
    """
    lattice = np.linspace(0, 1, PLACES)
    places = np.stack(np.meshgrid(lattice, lattice), axis=-1).reshape(-1, 2)
    found = np.zeros_like(centres)
    for index, (centre, own) in enumerate(zip(centres, half, strict=True)):
        at = np.clip(np.vstack([centre, places]), own, np.maximum(1 - own, own))
        away = np.abs(at - centre)
        # The distance to the edge of the box counts most, because long names are placed beside their group.
        cost = np.linalg.norm(np.maximum(away - own, 0), axis=1) + np.linalg.norm(away, axis=1) / 4
        cost += COVERED * (np.abs(at[:, None] - points) < own).all(-1).mean(1)
        overlap = own + half[:index] + GAP - np.abs(at[:, None] - found[:index])
        cost += CROSSED * np.maximum(overlap, 0).prod(-1).sum(1)
        found[index] = at[cost.argmin()]
    return found
