"""Tools for plots: panels, `show` and `save` as in scanpy, shared texts of docstrings, and the interactive page."""

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
from typing import TYPE_CHECKING, Any

from dice._errors import InputError
from dice._files import atomic, check_target

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    # Only the first plot imports matplotlib.
    Axes = Figure = Any

#: Figure and axes. Functions that :func:`plot` decorates return both.
Drawn = tuple[Figure, Any]
#: Side of a panel and maximum width of a row of panels, in inches.
PANEL, PAGE = 3.2, 11.0
#: Backends that only write files; all others can show a figure.
_FILE_BACKENDS = frozenset({"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})
#: Scripts of the page. Each needs only those before it.
SCRIPTS = ("data", "levels", "map", "selection", "corrections", "panels", "sections", "main")

#: Shared texts. A line ``{name}`` in the docstring of a plot is replaced by the text of this name.
SHARED_TEXTS = {
    "reference_map": """
reference_rep
    Key of ``reference.obsm`` that the map is computed from.""",
    "transferred": """
key
    Key of the transferred labels. None uses ``f"{labels_key}_dice"``.""",
    "figure": """
show
    Show the figure. None shows it if the backend can show figures; False returns the axes instead.
save
    Path of a file for the figure. The ending of the name sets the format.
return_fig
    Return the figure.""",
    "coordinates": """
{axes} Also sets the coordinates as :func:`dice.pl.comparison` does, unless `adata` is a view:
``adata.obsm[f"{use_rep}_umap"]`` (n_obs, 2) float32 and ``adata.uns[f"{use_rep}_umap"]``.""",
    "axes": """
None, the figure with ``return_fig=True``, or the list of axes with ``show=False``.""",
}


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
        Width and height of a panel in inches. Titles, legends and colour bars are added to the size of the figure.
    widths
        Widths of the columns in inches, if they differ.
    same_limits
        Use the same limits in all panels.
    square
        Whether all panels are square maps. They are then moved close together.
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


def check_titles(titles: Sequence[str] | None, names: list[str], what: str) -> list[str]:
    """Return the titles, of which there must be one per name, or the names if there are no titles."""
    if titles is not None and len(titles) != len(names):
        raise InputError(f"`titles` must be {len(names)} titles, one for each of the {what}, got {len(titles)}.")
    return names if titles is None else list(titles)


def plot(function: Callable[..., Drawn]) -> Callable[..., Any]:
    """Decorate a function that returns a figure and its axes: save, show or return them as scanpy's plots do.

    A figure that is neither saved nor shown stays open for ``plt.savefig``. The shared texts are inserted into the
    docstring, so that :func:`help` and Sphinx show them.
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
        if show is False:
            return axes
        if show or plt.get_backend().lower() not in _FILE_BACKENDS:
            # The figure stays open: if `show` does not block, closing would remove the window.
            plt.show()
        elif save is not None:
            plt.close(figure)
        return None

    # Sphinx reads the defaults of parameters from the source of `__wrapped__`, which lacks the added parameters.
    del drawn.__wrapped__
    own, manners = inspect.signature(function), list(inspect.signature(drawn).parameters.values())[1:-1]
    parameters = [*own.parameters.values(), *manners]
    drawn.__signature__ = own.replace(parameters=parameters, return_annotation=Any)  # type: ignore[attr-defined]
    if drawn.__doc__ is not None:  # None under ``python -OO``
        # Before 3.13, Python does not remove the indentation itself.
        drawn.__doc__ = inspect.cleandoc(drawn.__doc__)
        for name, entries in SHARED_TEXTS.items():
            drawn.__doc__ = drawn.__doc__.replace(f"\n{{{name}}}", entries)
    return drawn


@dataclass(frozen=True, repr=False)
class Page:
    """An interactive page. Notebooks show it, and :meth:`save` writes it to a file."""

    content: dict[str, Any]
    title: str = "dice"

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
        check_target(path)
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
