"""How a number is distributed over a map and over the labels of the cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dice._plot import draw
from dice._plot.colors import SAFE, Colors
from dice._plot.figure import PANEL, panels
from dice._types import Floats, Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Inches per label, and where there are many, so that sixty of them can still be read.
_LABEL_HEIGHT, _SMALL_HEIGHT, _MANY = 0.2, 0.14, 24
RING = "#D55E00"


def map_and_distribution(
    where: Floats, numbers: Colors, groups: Colors | None, *, title: str, size: float | None, ringed: Mask | None = None
) -> tuple[Figure, list[Axes]]:
    """The cells coloured by a number, and boxes per label or a histogram.

    Novel cells are `ringed` on the map, and their share is written beside every label.
    """
    rows = [] if groups is None else _rows(groups, numbers, ringed)
    # The map is as high as the boxes, so that nothing beside them is empty.
    height = max(PANEL, 0.8 + len(rows) * (_LABEL_HEIGHT if len(rows) <= _MANY else _SMALL_HEIGHT))
    words = 0.3 + 0.07 * max((len(name) for name, *_ in rows), default=0)
    widths = height - 0.3 + draw.COLORBAR_WIDTH, PANEL - 0.4 + words
    figure, axes = panels(2, ncols=2, size=(sum(widths) / 2, height), widths=widths, square=False)
    points = draw.scatter_colored(axes[0], where, numbers, size=size)
    draw.style_map(axes[0], title=title, n_cells=len(where))
    draw.add_colorbar(axes[0], points, label="")
    if ringed is not None and ringed.any():
        area = 3 * draw.point_size(len(where), size) + 6
        look: dict[str, Any] = {"facecolors": "none", "edgecolors": RING, "linewidths": 0.7}
        draw.scatter(axes[0], where[ringed], label="novel", size=area, zorder=4, **look)
        axes[0].text(1, 0, "o novel", color=RING, fontsize=9, transform=axes[0].transAxes, ha="right", va="top")
    if groups is None:
        known = numbers.values[~numbers.missing]
        axes[1].hist(known, bins=int(np.clip(np.sqrt(len(known)), 5, 50)), color=SAFE[0])
    else:
        _boxes(axes[1], rows)
    draw.plain(axes[1], x=numbers.name, y="cells" if groups is None else "")
    return figure, axes


def _rows(groups: Colors, numbers: Colors, ringed: Mask | None) -> list[tuple[str, str, Floats]]:
    """Name, colour and known numbers of every label, the largest median first and cells without a label last."""
    rows = []
    for name, color, mine in groups.groups:
        note = "" if ringed is None else f" ({ringed[mine].mean():.0%})"
        rows.append((name + note, color, numbers.values[mine & ~numbers.missing]))
    n_labels = len(rows) - bool(groups.missing.any())
    order = sorted(rows[:n_labels], key=lambda row: -float(np.median(row[2])) if len(row[2]) else np.inf)
    return [*order, *rows[n_labels:]]


def _boxes(ax: Axes, rows: list[tuple[str, str, Floats]]) -> None:
    """One horizontal box per label with known numbers, which leaves room for long names."""
    rows = [row for row in rows if len(row[2])]
    y = draw.name_rows(ax, [name for name, *_ in rows], edge=0.6)
    ax.tick_params(axis="y", labelsize=9 if len(rows) <= _MANY else 7)
    # Drawn by hand: the option of ``boxplot`` for horizontal boxes differs between matplotlib versions.
    marks = np.array([np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)) for *_, values in rows])
    low, left, middle, right, high = marks.reshape(-1, 5).T
    ax.hlines(y, low, high, color="black", linewidth=0.8, zorder=2)
    look: dict[str, Any] = {"color": [color for _, color, _ in rows], "edgecolor": "black", "linewidth": 0.8}
    ax.barh(y, right - left, left=left, height=0.7, zorder=3, **look)
    # A dot shows on every colour, and for a label with one cell only.
    ax.scatter(middle, y, s=22, color="white", edgecolor="black", linewidths=0.8, zorder=4)
