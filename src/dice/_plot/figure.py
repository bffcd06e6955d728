"""Where panels come from and where figures go: scanpy's manners for `ax`, `show` and `save`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 3.6  # inches
#: Backends that only write files; all others can show a figure.
_FILE_BACKENDS = frozenset({"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})


def panels(
    n_panels: int,
    *,
    ax: Axes | None = None,
    ncols: int = 1,
    size: tuple[float, float] = (PANEL, PANEL),
    margin: float = 0.0,
    widths: tuple[float, ...] | None = None,
    shared: bool = False,
    square: bool = True,
) -> tuple[Figure, list[Axes]]:
    """Axes for `n_panels` in a new figure, with `margin` inches for legends; or the caller's `ax`.

    Parameters
    ----------
    n_panels
        How many are needed.
    ax
        The caller's axes, good for one panel.
    ncols
        Panels in a row.
    size
        Width and height of a panel in inches.
    margin
        Width to add on the right.
    widths
        Relative widths of the columns; None for equal ones.
    shared
        Same limits in all panels.
    square
        All panels are square maps, and are moved together as far as that leaves room.
    """
    if ncols < 1:
        raise InputError(f"ncols={ncols} leaves no room for panels: pass 1 or more.")
    if ax is not None:
        if n_panels != 1:
            raise InputError(f"ax is one panel, but {n_panels} are drawn: leave ax out.")
        # Twice, because axes may sit in a subfigure.
        return ax.figure.figure, [ax]
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    n_cols = min(ncols, n_panels)
    n_rows = -(-n_panels // n_cols)
    figure = plt.figure(
        figsize=(n_cols * size[0] + margin, n_rows * size[1]),
        layout=ConstrainedLayoutEngine(wspace=0.02, hspace=0.04, compress=square),
    )
    cells = figure.subplots(n_rows, n_cols, squeeze=False, sharex=shared, sharey=shared, width_ratios=widths)
    axes = list(np.ravel(cells))
    for spare in axes[n_panels:]:
        spare.remove()
    return figure, axes[:n_panels]


def check_titles(titles: Sequence[str] | None, names: list[str], what: str) -> list[str]:
    """The caller's titles, one for each of the things that are drawn, or else their names."""
    if titles is not None and len(titles) != len(names):
        raise InputError(f"There are {len(titles)} titles for {len(names)} {what}: pass one each.")
    return names if titles is None else list(titles)


def finish(
    figure: Figure,
    axes: Any,
    *,
    show: bool | None,
    save: str | os.PathLike[str] | None,
    return_fig: bool,
    owned: bool = True,
) -> Any:
    """Save, show, return or close a figure as scanpy does; a caller's `ax` is not `owned`."""
    import matplotlib.pyplot as plt

    _take_names_literally(figure)
    if save is not None:
        figure.savefig(Path(save), dpi=150, bbox_inches="tight")
    if return_fig:
        return figure
    if show is None and owned and plt.get_backend().lower() not in _FILE_BACKENDS:
        show = True
    if show:
        # Not closed afterwards: where show does not block, that would take the window away again.
        plt.show()
    if show is False or not owned:
        return axes
    if not show:
        plt.close(figure)
    return None


def _take_names_literally(figure: Figure) -> None:
    """Two dollar signs in a name are no formula; the only formulas are matplotlib's own numbers at ticks."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if "$" in text.get_text() and r"\mathdefault" not in text.get_text():
            text.set_parse_math(False)
