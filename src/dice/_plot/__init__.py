"""Tools for plots: panels, `show` and `save` as in scanpy, and the interactive page."""

import base64
import hashlib
import inspect
import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes as Axes
from matplotlib.figure import Figure as Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from dice._files import atomic, check_target

#: Figure and axes. Functions that :func:`plot` decorates return both.
Drawn = tuple[Figure, Any]
#: Side of a panel and maximum width of a row of panels, in inches.
PANEL, PAGE = 3.2, 11.0
#: Backends that only write files; all others can show a figure.
_FILE_BACKENDS = frozenset({"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})
#: Scripts of the page. Each script needs only the scripts before it.
SCRIPTS = ("data", "levels", "map", "selection", "corrections", "panels", "sections", "main")


def panels(
    n_panels: int,
    *,
    widths: float | Sequence[float] = PANEL,
    height: float | Sequence[float] = PANEL,
    same_limits: bool = False,
    square: bool = True,
) -> tuple[Figure, list[Axes]]:
    """Return a new figure with axes for `n_panels`.

    Parameters
    ----------
    n_panels
        Number of panels.
    widths
        Width of every column in inches. With one number, a row has as many panels as fit on a page. Titles, legends and
        colour bars are added to the size of the figure.
    height
        Height of a panel in inches, or heights of its parts. Each part has axes of its own.
    same_limits
        Use the same limits in all panels.
    square
        Whether all panels are square maps. Panels are then close together.
    """
    widths = [widths] * columns(n_panels, widths) if isinstance(widths, int | float) else widths
    n_rows, parts = math.ceil(n_panels / len(widths)), [height] if isinstance(height, int | float) else [*height]
    figure, cells = plt.subplots(
        n_rows * len(parts), len(widths), squeeze=False, sharex=same_limits, sharey=same_limits,
        figsize=(sum(widths), n_rows * sum(parts)), width_ratios=widths, height_ratios=parts * n_rows,
        layout=ConstrainedLayoutEngine(wspace=0.02, hspace=0.04, compress=square),
    )  # fmt: skip
    axes = list(cells.reshape(n_rows, len(parts), -1).swapaxes(1, 2).flat)
    for spare in axes[n_panels * len(parts) :]:
        spare.remove()
    return figure, axes[: n_panels * len(parts)]


def columns(n_panels: int, width: float) -> int:
    """Return the number of panels per row. Rows fit on a page and are about equally full."""
    n_rows = math.ceil(n_panels / max(PAGE // width, 1))
    return math.ceil(n_panels / n_rows)


def outermost(axes: Sequence[Axes]) -> Axes:
    """Return the first panel of the last column. A legend beside it does not come between panels."""
    return max(axes, key=lambda ax: ax.get_subplotspec().colspan.start)  # type: ignore[union-attr]


def _make_room(figure: Figure) -> None:
    """Enlarge a figure to make room for titles, names, legends and colour bars, so that panels keep their size."""
    columns, rows = defaultdict[int, float](float), defaultdict[int, float](float)
    for ax in figure.axes:
        cell, outside = ax.get_subplotspec(), ax.get_tightbbox()
        if cell is not None and outside is not None:
            column, row = cell.colspan.start, cell.rowspan.start
            columns[column] = max(columns[column], outside.width - ax.bbox.width)
            rows[row] = max(rows[row], outside.height - ax.bbox.height)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + sum(columns.values()) / figure.dpi, height + sum(rows.values()) / figure.dpi)


def plot(function: Callable[..., Drawn]) -> Callable[..., Any]:
    """Decorate a function that returns a figure and its axes: save, show or return both as scanpy does.

    A figure that is neither saved nor shown stays open for ``plt.savefig``.
    """
    own, manners = inspect.signature(function), list(inspect.signature(_finish).parameters.values())[2:]

    @wraps(function)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in (manner.name for manner in manners) if name in kwargs}
        with plt.style.context("dice._plot.style"):
            figure, axes = function(*args, **kwargs)
            _make_room(figure)
        return _finish(figure, axes, **given)

    # Sphinx would read defaults from the source of `__wrapped__`, which lacks the added parameters.
    del drawn.__wrapped__
    parameters = [*own.parameters.values(), *manners]
    drawn.__signature__ = own.replace(parameters=parameters, return_annotation=Any)  # type: ignore[attr-defined]
    return drawn


def _finish(
    figure: Figure, axes: Any, *, show: bool | None = None, save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:  # fmt: skip
    """Save, show or return a figure and its axes."""
    if save is not None:
        figure.savefig(Path(save), dpi=150, bbox_inches="tight")
    if return_fig:
        return figure
    if show is False:
        return axes
    if show or plt.get_backend().lower() not in _FILE_BACKENDS:
        # The figure stays open: if `show` does not block, closing would remove the window.
        plt.show()
    elif save is not None:
        plt.close(figure)
    return None


@dataclass(frozen=True, repr=False)
class Page:
    """An interactive page. Notebooks show it, and :meth:`save` writes it to a file."""

    content: dict[str, Any]
    title: str = "dice"
    #: Files that the page was made from. :meth:`save` does not replace them.
    inputs: Sequence[Any] = ()

    @property
    def html(self) -> str:
        """The page as HTML."""
        folder = files("dice._plot").joinpath("page_files")
        template, style = (folder.joinpath(name).read_text("utf-8") for name in ("page.html", "page.css"))
        script = "\n".join(["", *(folder.joinpath(f"{name}.js").read_text("utf-8") for name in SCRIPTS)])
        # With this policy the browser itself refuses the network and all scripts except this one.
        policy = (
            f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'"
        )
        # A label may contain "</script>". Without "<", it cannot end this element or start another one.
        data = json.dumps(self.content, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
        slots = {"policy": policy, "style": style, "script": script, "data": data, "title": escape(self.title)}
        # One pass, so that inserted text is not searched for further slots.
        return re.sub(r"\{\{(\w+)\}\}", lambda found: slots[found[1]], template)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, for example ``"report.html"``."""
        check_target(path, inputs=self.inputs)
        with atomic(path) as draft:
            draft.write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"Page of {self.content['n']:,} cells: show it in a notebook, or write it with .save('report.html')."

    def _repr_html_(self) -> str:
        # Sandboxed: the page has no access to the notebook around it.
        look = 'sandbox="allow-scripts allow-downloads" style="width:100%;height:900px;border:0"'
        return f'<iframe {look} srcdoc="{escape(self.html)}"></iframe>'


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"
