"""Numbers of cells on a map and by label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._data.colors import SAFE, Colors
from dice._plot import draw
from dice._plot.figure import PANEL, name_groups, panels
from dice._types import Floats, Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Inches per label, inches per label if there are many, and the number that is many.
_ROW_HEIGHT, _SMALL_HEIGHT, _MANY_ROWS = 0.2, 0.14, 24
RING = "#D55E00"


@dataclass(frozen=True)
class Marks:
    """Marked cells (n,), and marked groups: a mask of cells (n,) for each name."""

    cells: Mask
    groups: Mapping[str, Mask] = field(default_factory=dict)
    #: Whether the rows beside the map are these groups.
    in_rows: bool = False


def map_and_distribution(
    where: Floats, numbers: Colors, groups: Colors | None, *, title: str, size: float | None, marks: Marks | None = None
) -> tuple[Figure, list[Axes]]:
    """Draw cells coloured by a number, and a box per label or a histogram.

    Marked cells have a ring on the map, and their share is written beside every label. Marked groups are named.
    """
    rows = {} if groups is None else _rows(groups, numbers)
    share = {name: "" if marks is None else f" ({marks.cells[mine].mean():.0%})" for name, (_, mine) in rows.items()}
    # The map is as high as the boxes, which leaves no empty space.
    height = max(PANEL, 0.8 + len(rows) * (_ROW_HEIGHT if len(rows) <= _MANY_ROWS else _SMALL_HEIGHT))
    words = 0.3 + 0.07 * max((len(name) + len(note) for name, note in share.items()), default=0)
    widths = height - 0.3 + draw.COLORBAR_WIDTH, PANEL - 0.4 + words
    figure, axes = panels(2, ncols=2, size=(sum(widths) / 2, height), widths=widths, square=False)
    points = draw.scatter_colored(axes[0], where, numbers, size=size)
    draw.style_map(axes[0], title=title, n_cells=len(where))
    draw.add_colorbar(axes[0], points, label="")
    if marks is not None:
        _mark(axes[0], where, marks, size)
    known = ~numbers.missing
    if groups is None:
        bins = int(np.clip(np.sqrt(known.sum()), 5, 50))
        axes[1].hist(numbers.values[known], bins=bins, color=SAFE[0])
    else:
        boxes = {name + share[name]: (color, numbers.values[mine & known]) for name, (color, mine) in rows.items()}
        _boxes(axes[1], {name: box for name, box in boxes.items() if len(box[1])})
    if marks is not None and marks.in_rows:
        for text in axes[1].get_yticklabels():
            if text.get_text().rpartition(" (")[0] in marks.groups:
                text.set(color=RING, fontweight="bold")
    draw.plain(axes[1], x=numbers.name, y="cells" if groups is None else "")
    return figure, axes


def _mark(ax: Axes, where: Floats, marks: Marks, size: float | None) -> None:
    """Draw rings around marked cells, names of marked groups, and an explanation below the map."""
    said = []
    if marks.cells.any():
        area = 3 * draw.point_size(len(where), size) + 6
        look: dict[str, Any] = {"facecolors": "none", "edgecolors": RING, "linewidths": 0.7}
        draw.scatter(ax, where[marks.cells], label="novel", size=area, zorder=4, **look)
        said.append("o: novel cell")
    if marks.groups:
        name_groups(ax, [(name, RING, cells) for name, cells in marks.groups.items()], where, ink=RING)
        said.append("name: novel group, tested as a whole; its cells need no high score")
    if said:
        # Below the name of the axis.
        ax.text(0, -0.075, "\n".join(said), color=RING, fontsize=8, transform=ax.transAxes, ha="left", va="top")


def _rows(groups: Colors, numbers: Colors) -> dict[str, tuple[str, Mask]]:
    """Return the colour and the cells of every label, the largest median first and cells without a label last."""

    def order(group: tuple[str, str, Mask]) -> tuple[bool, float]:
        name, _, mine = group
        values = numbers.values[mine & ~numbers.missing]
        return name not in groups.names, -float(np.median(values)) if len(values) else np.inf

    return {name: (color, mine) for name, color, mine in sorted(groups.groups, key=order)}


def _boxes(ax: Axes, rows: Mapping[str, tuple[str, Floats]]) -> None:
    """Draw a horizontal box per label, which leaves room for long names."""
    y = draw.name_rows(ax, list(rows), edge=0.6)
    ax.tick_params(axis="y", labelsize=9 if len(rows) <= _MANY_ROWS else 7)
    # Not drawn by ``boxplot``: its option for horizontal boxes differs between matplotlib versions.
    marks = np.array([np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)) for _, values in rows.values()])
    low, left, middle, right, high = marks.reshape(-1, 5).T
    ax.hlines(y, low, high, color="black", linewidth=0.8, zorder=2)
    look: dict[str, Any] = {"color": [color for color, _ in rows.values()], "edgecolor": "black", "linewidth": 0.8}
    ax.barh(y, right - left, left=left, height=0.7, zorder=3, **look)
    # A dot is visible on every colour, and for labels with a single cell.
    ax.scatter(middle, y, s=22, color="white", edgecolor="black", linewidths=0.8, zorder=4)
