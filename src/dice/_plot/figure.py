"""Panels and figures with `show` and `save` as in scanpy, and names of groups on a map."""

from __future__ import annotations

import inspect
import math
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._docs import shared
from dice._errors import InputError
from dice._model.arrays import subsample
from dice._types import Floats, Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    # The first plot imports matplotlib.
    Axes = Figure = Any

#: Figure and axes, as functions under :func:`plot` return them.
Drawn = tuple[Figure, Any]
#: Side of a panel, and largest width of a row of panels, in inches.
PANEL, PAGE = 3.2, 11.0
#: Backends that only write files; all others can show a figure.
_FILE_BACKENDS = frozenset({"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})


def panels(
    n_panels: int,
    *,
    ncols: int | None = None,
    size: tuple[float, float] = (PANEL, PANEL),
    widths: Sequence[float] | None = None,
    same_limits: bool = False,
    square: bool = True,
) -> tuple[Figure, list[Axes]]:
    """Return a new figure with axes for `n_panels`.

    Parameters
    ----------
    n_panels
        Number of panels.
    ncols
        Number of panels in a row. None takes as many as fit on a page.
    size
        Width and height of a panel in inches. The figure grows by all that is around the panels.
    widths
        Widths of the columns in inches, if they differ.
    same_limits
        Use the same limits in all panels.
    square
        Whether all panels are square maps, which are moved close together.
    """
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    ncols = columns(n_panels, size[0]) if ncols is None else ncols
    n_rows = math.ceil(n_panels / ncols)
    widths = [size[0]] * ncols if widths is None else widths
    look: dict[str, Any] = {"figsize": (sum(widths), n_rows * size[1]), "width_ratios": widths}
    look |= {"layout": ConstrainedLayoutEngine(wspace=0.02, hspace=0.04, compress=square)}
    figure, cells = plt.subplots(n_rows, ncols, squeeze=False, sharex=same_limits, sharey=same_limits, **look)
    axes = list(cells.flat)
    for spare in axes[n_panels:]:
        spare.remove()
    return figure, axes[:n_panels]


def columns(n_panels: int, width: float) -> int:
    """Return the number of panels in a row, so that rows are about equally full and fit on a page."""
    n_rows = math.ceil(n_panels / max(PAGE // width, 1))
    return math.ceil(n_panels / n_rows)


def outermost(axes: Sequence[Axes]) -> Axes:
    """Return the first panel of the last column, beside which a legend parts no panels."""
    return max(axes, key=lambda ax: ax.get_subplotspec().colspan.start)  # type: ignore[union-attr]


def _make_room(figure: Figure) -> None:
    """Enlarge a figure by the titles, names, legends and colour bars around its panels, which so keep their size."""
    columns, rows = defaultdict[int, float](float), defaultdict[int, float](float)
    for ax in figure.axes:
        cell, outside = ax.get_subplotspec(), ax.get_tightbbox()
        if cell is not None and outside is not None:
            column, row = cell.colspan.start, cell.rowspan.start
            columns[column] = max(columns[column], outside.width - ax.bbox.width)
            rows[row] = max(rows[row], outside.height - ax.bbox.height)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + sum(columns.values()) / figure.dpi, height + sum(rows.values()) / figure.dpi)


def check_titles(titles: Sequence[str] | None, names: list[str], what: str) -> list[str]:
    """Return the titles, one per name, or the names if there are no titles."""
    if titles is not None and len(titles) != len(names):
        raise InputError(f"`titles` must be {len(names)} titles, one for each of the {what}, got {len(titles)}.")
    return names if titles is None else list(titles)


def plot(function: Callable[..., Drawn]) -> Callable[..., Any]:
    """Let a function that returns a figure and its axes save, show or return them as scanpy's plots do.

    A figure that is neither saved nor shown stays open for ``plt.savefig``.
    """

    @wraps(function)
    def drawn(
        *args: Any,
        show: bool | None = None,
        save: str | os.PathLike[str] | None = None,
        return_fig: bool = False,
        **kwargs: Any,
    ) -> Any:
        import matplotlib.pyplot as plt

        with plt.style.context("dice._plot.style"):
            figure, axes = function(*args, **kwargs)
            _make_room(figure)
        if save is not None:
            figure.savefig(Path(save), dpi=150, bbox_inches="tight")
        if return_fig:
            return figure
        if show is None and plt.get_backend().lower() not in _FILE_BACKENDS:
            show = True
        if show:
            # Not closed afterwards: if show does not block, closing would remove the window.
            plt.show()
        if show is False:
            return axes
        if save is not None and not show:
            plt.close(figure)
        return None

    # Sphinx looks for the defaults of all parameters in the source, so that it must show none.
    del drawn.__wrapped__
    own, manners = inspect.signature(function), list(inspect.signature(drawn).parameters.values())[1:-1]
    parameters = [*own.parameters.values(), *manners]
    drawn.__signature__ = own.replace(parameters=parameters, return_annotation=Any)  # type: ignore[attr-defined]
    return shared(drawn)


#: More groups than this are named on the map instead of in a legend. A legend of two columns of long names is as wide
#: as a panel. Chosen by looking at plots.
MANY = 20
#: Width and height of a letter, as shares of the font size. Estimated for bold DejaVu, the font of matplotlib.
LETTER, LINE = 0.7, 1.25
#: Costs of a name over all cells and of overlapping names, relative to that of a distance as long as the map, and the
#: gap between names in shares of the map. Chosen by looking at maps of 37 and 60 groups.
COVERED, CROSSED, GAP = 2.0, 5e3, 0.01
#: Places that are compared along each side, cells that they may cover, and the length of short names.
PLACES, POINTS, SHORT = 48, 400, 3


def side(n_groups: int) -> float:
    """Side of a map in inches; more names of groups need a larger map."""
    return PANEL if n_groups <= MANY else PANEL + min(n_groups / 20, 2.5)


def name_groups(
    ax: Axes, groups: Sequence[tuple[str, str, Mask]], where: Floats, *, zorder: float = 5, ink: str = "black"
) -> None:
    """Write the name of every group (name, colour, cells) at its middle cell or beside it, without overlaps.

    The limits of the panel must be final.
    """
    if not groups:
        return
    from matplotlib import patheffects

    ax.autoscale_view()
    # Places are in shares of the panel.
    shares = ax.transData - ax.transAxes
    starts = shares.transform([_middle(where[cells]) for *_, cells in groups])
    size = 9 if len(groups) <= MANY else 7 if len(groups) <= 40 else 6
    half = size / 144 / side(len(groups)) * np.array([(LETTER * len(name), LINE) for name, *_ in groups])
    # Short names, such as cluster numbers, hide few cells and stay on them.
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
    """Return the cell nearest to the median, because the median itself may lie between two islands."""
    return own[np.square(own - np.median(own, axis=0)).sum(1).argmin()]


def place_boxes(centres: Floats, half: Floats, points: Floats) -> Floats:
    """Return centres (n, 2) of boxes of `half` sides (n, 2) near their wanted centres, in a unit square with points.

    Boxes are placed one after the other. Each takes the place with the least cost: its distance, the points (m, 2) that
    it covers and the boxes that it overlaps, which costs most.
    """
    lattice = np.linspace(0, 1, PLACES)
    places = np.stack(np.meshgrid(lattice, lattice), axis=-1).reshape(-1, 2)
    found = np.zeros_like(centres)
    for index, (centre, own) in enumerate(zip(centres, half, strict=True)):
        at = np.clip(np.vstack([centre, places]), own, np.maximum(1 - own, own))
        away = np.abs(at - centre)
        # The distance to the box counts most, because long names are placed beside their group.
        cost = np.linalg.norm(np.maximum(away - own, 0), axis=1) + np.linalg.norm(away, axis=1) / 4
        cost += COVERED * (np.abs(at[:, None] - points) < own).all(-1).mean(1)
        overlap = own + half[:index] + GAP - np.abs(at[:, None] - found[:index])
        cost += CROSSED * np.maximum(overlap, 0).prod(-1).sum(1)
        found[index] = at[cost.argmin()]
    return found
