"""How a number is distributed over the labels of the cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dice._plot.colors import MISSING, SAFE
from dice._plot.figure import PANEL, panels
from dice._plot.panels import COLORBAR_WIDTH, add_colorbar, plain, scatter_colored, style_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from dice._plot.colors import Colors
    from dice._plot.layout import Coordinates

    Floats = NDArray[np.float64]

#: Inches per label, so that sixty of them can still be read.
_LABEL_HEIGHT = 0.2


def map_and_distribution(
    where: Coordinates,
    numbers: Colors,
    groups: Colors | None,
    *,
    title: str | None,
    size: float | None,
    notes: Mapping[str, str] | None = None,
) -> tuple[Figure, list[Axes]]:
    """The cells coloured by a number, and boxes per label or a histogram; `notes` follow the names of labels."""
    names = [] if groups is None else [_noted(name, notes) for name in groups.legend]
    height = max(PANEL, 0.8 + len(names) * _LABEL_HEIGHT)
    margin = COLORBAR_WIDTH + 0.07 * max(map(len, names), default=0)
    figure, axes = panels(2, ncols=2, size=(PANEL + 0.4, height), margin=margin, square=False)
    points = scatter_colored(axes[0], where, numbers, size=size)
    style_map(axes[0], title=numbers.name if title is None else title, n_cells=len(where))
    axes[0].set_anchor("N")
    add_colorbar(axes[0], points, label="")
    if groups is None:
        _histogram(axes[1], numbers.values)
    else:
        _boxes(axes[1], numbers.values, groups, notes)
    axes[1].set_xlabel(numbers.name, fontsize=9)
    return figure, axes


def _noted(name: str, notes: Mapping[str, str] | None) -> str:
    return f"{name} {notes[name]}" if notes and name in notes else name


def _histogram(ax: Axes, values: Floats) -> None:
    known = values[np.isfinite(values)]
    ax.hist(known, bins=int(np.clip(np.sqrt(len(known)), 5, 50)), color=SAFE[0])
    ax.set_ylabel("cells", fontsize=9)
    plain(ax)


def _boxes(ax: Axes, values: Floats, groups: Colors, notes: Mapping[str, str] | None) -> None:
    """One horizontal box per label, which leaves room for long names."""
    finite = np.isfinite(values)
    palette = groups.labels or {}
    names = list(palette)
    found = {name: values[finite & (groups.values == i)] for i, name in enumerate(names)}
    order = sorted((n for n in names if len(found[n])), key=lambda n: -float(np.median(found[n])))
    missing = values[finite & groups.missing]
    boxes = [found[name] for name in order]
    colors = [palette[name] for name in order]
    if len(missing):
        order, boxes, colors = [*order, "NA"], [*boxes, missing], [*colors, MISSING]
    y = np.arange(len(boxes))
    # Drawn by hand: the option of ``boxplot`` for horizontal boxes differs between matplotlib versions.
    marks = np.array([np.quantile(box, (0.05, 0.25, 0.5, 0.75, 0.95)) for box in boxes])
    low, left, middle, right, high = marks.reshape(-1, 5).T
    ax.hlines(y, low, high, color="black", linewidth=0.8, zorder=2)
    ax.barh(y, right - left, left=left, height=0.7, color=colors, edgecolor="black", linewidth=0.8, zorder=3)
    # A dot shows on every colour, and for a label with one cell only.
    ax.scatter(middle, y, s=22, color="white", edgecolor="black", linewidths=0.8, zorder=4)
    ax.set_yticks(y, [_noted(name, notes) for name in order], fontsize=9)
    ax.set_ylim(len(order) - 0.4, -0.6)
    plain(ax)
