"""Names of groups on the map itself, where there are too many for a legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._plot.figure import PANEL
from dice._types import Floats, Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: More groups than this are named on the map: a judgement, not a measurement. A legend of two columns of long names is
#: as wide as a panel already.
MANY = 20
#: Width and height of a letter, as parts of the font size: an estimate for bold DejaVu, matplotlib's own font.
LETTER, LINE = 0.7, 1.25
#: Names up to this length stay on the middle cell of their group.
SHORT = 3
#: Inches of a panel that its title and the names of its axes take.
FRAME = 0.5
#: A place for a name is worse by so many inches of distance for every square inch of cells that it covers, and of names
#: that it overlaps; names keep a gap (inches). Chosen by looking at maps of 37 and 60 groups.
COVERED, CROSSED, GAP = 15.0, 1e3, 0.04
#: Resolution of a map when places are compared.
PIXELS = 128


def side(n_groups: int) -> float:
    """Inches of a map with the names of so many groups: sixty need a larger one than three."""
    return PANEL if n_groups <= MANY else PANEL + min(n_groups / 20, 2.5)


def name_groups(ax: Axes, groups: Sequence[tuple[str, str, Mask]], where: Floats, *, zorder: float = 5) -> None:
    """Write the name of every group, with its colour and cells, at its middle cell or beside it, none over another.

    To be called when the limits of the panel are final.
    """
    from matplotlib import patheffects

    size = 9 if len(groups) <= MANY else 7 if len(groups) <= 40 else 6
    halo = [patheffects.withStroke(linewidth=2, foreground="white")]
    middles = np.array([_middle(where[cells]) for *_, cells in groups], dtype=np.float64).reshape(-1, 2)
    # Held, so that lines to the names move nothing.
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())
    low, high = (np.array(edge) for edge in zip(ax.get_xlim(), ax.get_ylim(), strict=True))
    edge = side(len(groups)) - FRAME
    inches = edge / (high - low)
    half = 0.5 * size / 72 * np.array([(LETTER * len(name), LINE) for name, *_ in groups]).reshape(-1, 2)
    every = (where - low) * inches
    placed = (middles - low) * inches
    # Numbers of clusters hide little, and belong on them.
    if max((len(name) for name, *_ in groups), default=0) > SHORT:
        placed = place_boxes(placed, half, every, edge)
    for (name, color, _), start, at, reach in zip(groups, (middles - low) * inches, placed, half, strict=True):
        end = np.clip(start, at - reach, at + reach)
        if (end != start).any():
            line: dict[str, Any] = {"color": color, "linewidth": 1.0, "zorder": zorder - 0.5}
            ax.plot(*(np.stack([start, end], axis=1) / inches[:, None] + low[:, None]), **line)
        x, y = at / inches + low
        ax.text(
            float(x), float(y), name, ha="center", va="center", fontweight="bold", fontsize=size, zorder=zorder,
            path_effects=halo,
        )  # fmt: skip


def _middle(own: Floats) -> Floats:
    """The cell that is nearest to the median of all: a median itself may lie between two islands."""
    return own[np.square(own - np.median(own, axis=0)).sum(1).argmin()]


def place_boxes(centres: Floats, half: Floats, points: Floats, edge: float) -> Floats:
    """Centres (n, 2) of boxes with `half` sides (n, 2) near where they should be, in a square with `points` (m, 2).

    One after the other takes the place with the least cost: its distance, the points that it covers and, worst, the
    boxes that it overlaps.
    """
    bins = np.clip((points / edge * PIXELS).astype(np.intp), 0, PIXELS - 1)
    taken = np.zeros((PIXELS + 1, PIXELS + 1))
    taken[bins[:, 0] + 1, bins[:, 1] + 1] = 1
    covered = taken.cumsum(0).cumsum(1)
    lattice = (np.arange(0, PIXELS, 2) + 0.5) * edge / PIXELS
    places = np.stack(np.meshgrid(lattice, lattice, indexing="ij"), axis=-1).reshape(-1, 2)
    found = np.zeros_like(centres)
    for index, (centre, own) in enumerate(zip(centres, half, strict=True)):
        at = np.clip(places, own, np.maximum(edge - own, own))
        low, high = (np.clip((corner / edge * PIXELS).astype(np.intp), 0, PIXELS) for corner in (at - own, at + own))
        (a, b), (c, d) = low.T, high.T
        hidden = (covered[c, d] - covered[a, d] - covered[c, b] + covered[a, b]) * (edge / PIXELS) ** 2
        overlap = own + half[:index] + GAP - np.abs(at[:, None] - found[:index])
        crossed = np.prod(np.maximum(overlap, 0), axis=-1).sum(1)
        # To the nearest edge: what is long stands beside its group rather than above a pile of others.
        distance = np.linalg.norm(at - centre, axis=1) / 4 + np.linalg.norm(
            np.maximum(np.abs(at - centre) - own, 0), axis=1
        )
        found[index] = at[(distance + COVERED * hidden + CROSSED * crossed).argmin()]
    return found
