"""Numbers of cells on a map and by label, and regions of highest density."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._data.colors import SAFE, Colors
from dice._plot import draw
from dice._plot.figure import PANEL, panels
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
    rows = [] if groups is None else _rows(groups, numbers, marks)
    # The map is as high as the boxes, which leaves no empty space.
    height = max(PANEL, 0.8 + len(rows) * (_ROW_HEIGHT if len(rows) <= _MANY_ROWS else _SMALL_HEIGHT))
    words = 0.3 + 0.07 * max((len(row.name) for row in rows), default=0)
    widths = height - 0.3 + draw.COLORBAR_WIDTH, PANEL - 0.4 + words
    figure, axes = panels(2, ncols=2, size=(sum(widths) / 2, height), widths=widths, square=False)
    points = draw.scatter_colored(axes[0], where, numbers, size=size)
    draw.style_map(axes[0], title=title, n_cells=len(where))
    draw.add_colorbar(axes[0], points, label="")
    if marks is not None:
        _mark(axes[0], where, marks, size)
    if groups is None:
        known = numbers.values[~numbers.missing]
        axes[1].hist(known, bins=int(np.clip(np.sqrt(len(known)), 5, 50)), color=SAFE[0])
    else:
        _boxes(axes[1], rows)
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
        _name(ax, where, marks.groups)
        said.append("name: novel group, tested as a whole; its cells need no high score")
    if said:
        # Below the name of the axis.
        ax.text(0, -0.075, "\n".join(said), color=RING, fontsize=8, transform=ax.transAxes, ha="left", va="top")


def _name(ax: Axes, where: Floats, groups: Mapping[str, Mask]) -> None:
    """Write names beside the cells of their groups, on the side with more room, without overlaps."""
    low, high = where.min(0), where.max(0)
    middles = {name: np.median(where[cells], axis=0) for name, cells in groups.items()}
    heights = {True: np.inf, False: np.inf}
    for name in sorted(groups, key=lambda name: -middles[name][1]):
        to_the_right = bool(middles[name][0] < (low[0] + high[0]) / 2)
        # A quantile, because a single cell far away would move the name.
        edge = np.quantile(where[groups[name], 0], 0.9 if to_the_right else 0.1)
        heights[to_the_right] = min(float(middles[name][1]), heights[to_the_right] - 0.07 * float(high[1] - low[1]))
        ax.annotate(
            name, (float(edge), heights[to_the_right]), (9 if to_the_right else -9, 0), textcoords="offset points",
            va="center", ha="left" if to_the_right else "right", color=RING, fontsize=9, fontweight="bold", zorder=5,
        )  # fmt: skip


@dataclass(frozen=True)
class _Row:
    """A label beside the map, with its numbers."""

    name: str
    color: str
    values: Floats
    novel: bool


def _rows(groups: Colors, numbers: Colors, marks: Marks | None) -> list[_Row]:
    """Return a row for every label, the largest median first and cells without a label last."""
    rows = []
    for name, color, mine in groups.groups:
        note = "" if marks is None else f" ({marks.cells[mine].mean():.0%})"
        novel = marks is not None and marks.in_rows and name in marks.groups
        rows.append(_Row(name + note, color, numbers.values[mine & ~numbers.missing], novel))
    n_labels = len(rows) - bool(groups.missing.any())
    order = sorted(rows[:n_labels], key=lambda row: -float(np.median(row.values)) if len(row.values) else np.inf)
    return [*order, *rows[n_labels:]]


def _boxes(ax: Axes, rows: list[_Row]) -> None:
    """Draw a horizontal box per label, which leaves room for long names."""
    rows = [row for row in rows if len(row.values)]
    y = draw.name_rows(ax, [row.name for row in rows], edge=0.6)
    ax.tick_params(axis="y", labelsize=9 if len(rows) <= _MANY_ROWS else 7)
    for text, row in zip(ax.get_yticklabels(), rows, strict=True):
        if row.novel:
            text.set(color=RING, fontweight="bold")
    # Not drawn by ``boxplot``: its option for horizontal boxes differs between matplotlib versions.
    marks = np.array([np.quantile(row.values, (0.05, 0.25, 0.5, 0.75, 0.95)) for row in rows])
    low, left, middle, right, high = marks.reshape(-1, 5).T
    ax.hlines(y, low, high, color="black", linewidth=0.8, zorder=2)
    look: dict[str, Any] = {"color": [row.color for row in rows], "edgecolor": "black", "linewidth": 0.8}
    ax.barh(y, right - left, left=left, height=0.7, zorder=3, **look)
    # A dot is visible on every colour, and for labels with a single cell.
    ax.scatter(middle, y, s=22, color="white", edgecolor="black", linewidths=0.8, zorder=4)


_GRID = 150


@dataclass(frozen=True)
class Region:
    """A density on a grid, and the threshold above which the region contains the wanted share of the points."""

    x: Floats
    y: Floats
    density: Floats
    threshold: float


def highest_density_region(points: Floats, level: float, *, min_width: float) -> Region:
    """Return the smallest region that contains a share `level` of a sample (highest density region of Hyndman, 1996).

    The kernel is as wide as a typical neighbourhood of sqrt(n) points, so that two distant modes stay apart. A width
    taken from the overall spread would join them.

    Parameters
    ----------
    points
        Sample (n, 2).
    level
        Share of the sample inside, between 0 and 1.
    min_width
        Smallest width of the kernel, for samples that coincide.
    """
    sample = points.astype(np.float64)
    width = max(_typical_spacing(sample), min_width)
    low, high = sample.min(0) - 4 * width, sample.max(0) + 4 * width
    x, y = (np.linspace(low[i], high[i], _GRID) for i in (0, 1))
    # A Gaussian kernel is a product over the axes, so the density is a product of matrices.
    kernel_x = _kernel(x[:, None] - sample[:, 0], width)
    kernel_y = _kernel(y[:, None] - sample[:, 1], width)
    inside = _kernel(_distances(sample), width).mean(1)
    return Region(
        x=x, y=y, density=kernel_y @ kernel_x.T / len(sample), threshold=float(np.quantile(inside, 1 - level))
    )


def _typical_spacing(sample: Floats) -> float:
    """Return the median distance to the sqrt(n)-th neighbour."""
    rank = min(int(np.ceil(np.sqrt(len(sample)))), len(sample) - 1)
    return float(np.median(np.sort(_distances(sample), axis=1)[:, rank]))


def _distances(sample: Floats) -> Floats:
    return np.asarray(np.linalg.norm(sample[:, None] - sample, axis=-1))


def _kernel(distance: Floats, width: float) -> Floats:
    return np.asarray(np.exp(-0.5 * (distance / width) ** 2))
