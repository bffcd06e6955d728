"""Uncertainty of every cell: where it is, and which labels have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dice._docs import shared
from dice._errors import InputError, SlotError
from dice.pl._colors import MISSING, SAFE, read_colors
from dice.pl._figure import PANEL, finish, panels
from dice.pl._layout import layout
from dice.pl._panels import COLORBAR_WIDTH, add_colorbar, scatter_colored, style_map

if TYPE_CHECKING:
    import os

    from anndata import AnnData
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from dice.pl._colors import Colors, Palette

    Floats = NDArray[np.float64]

#: Inches per label, so that sixty of them can still be read.
_LABEL_HEIGHT = 0.2


@shared
def uncertainty(
    adata: AnnData,
    *,
    groupby: str | None = None,
    key: str = "dice_uncertainty",
    use_rep: str = "X_dice",
    title: str | None = None,
    n_neighbors: int = 15,
    random_state: int = 0,
    size: float | None = None,
    color_map: str = "viridis",
    palette: Palette | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw the embedding coloured by uncertainty, and the distribution of uncertainty per label.

    Labels come in the order of their median, the least certain first; boxes hold the middle half of
    the cells, whiskers the middle nine tenths, dots are medians.

    Parameters
    ----------
    adata
        Query, as of :func:`dice.tl.denoise`.
    groupby
        Column of ``obs`` with labels; None draws one histogram of all cells.
    key
        Column of ``obs`` with the uncertainty, or any other number per cell.
    use_rep
        Key of ``obsm`` to draw.
    title
        Title of the map, by default `key`.
    {umap}
    color_map
        Matplotlib's colour map for the uncertainty.
    {palette}
    {figure}

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Sets, unless
    `adata` is a view, the coordinates as :func:`dice.pl.comparison` does:
    ``adata.obsm["X_dice_umap"]`` (n_obs, 2) float32 and ``adata.uns["X_dice_umap"]``.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> cells.obs["dice_uncertainty"] = abs(cells.obsm["U_true"]).mean(axis=1)
    >>> figure = dice.pl.uncertainty(cells, groupby="cell_type", use_rep="U_true", return_fig=True)
    >>> len(figure.axes)
    2
    """
    if key not in adata.obs:
        raise SlotError(f"adata.obs has no column {key!r}: run dice.tl.denoise first.")
    numbers = read_colors(adata, key, color_map)
    if numbers.labels is not None:
        raise InputError(f"adata.obs[{key!r}] holds labels: set key to a column of numbers.")
    groups = None if groupby is None else read_colors(adata, groupby, palette)
    if groups is not None and groups.labels is None:
        raise InputError(f"adata.obs[{groupby!r}] holds no labels: set groupby to a column of labels.")
    where = layout(adata, use_rep, n_neighbors=n_neighbors, random_state=random_state)

    n_rows = 0 if groups is None else len(groups.legend)
    height = max(PANEL, 0.8 + n_rows * _LABEL_HEIGHT)
    figure, axes = panels(
        2, ncols=2, size=(PANEL + 0.4, height), margin=COLORBAR_WIDTH + _names_width(groups), square=False
    )
    points = scatter_colored(axes[0], where, numbers, size=size)
    style_map(axes[0], title=key if title is None else title, n_cells=adata.n_obs)
    axes[0].set_anchor("N")
    add_colorbar(axes[0], points, label="")
    if groups is None:
        _histogram(axes[1], numbers.values)
    else:
        _boxes(axes[1], numbers.values, groups)
    axes[1].set_xlabel(key, fontsize=9)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _names_width(groups: Colors | None) -> float:
    return 0.0 if groups is None else 0.07 * max((len(x) for x in groups.legend), default=0)


def _histogram(ax: Axes, values: Floats) -> None:
    known = values[np.isfinite(values)]
    ax.hist(known, bins=int(np.clip(np.sqrt(len(known)), 5, 50)), color=SAFE[0])
    ax.set_ylabel("cells", fontsize=9)
    _plain(ax)


def _boxes(ax: Axes, values: Floats, groups: Colors) -> None:
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
    ax.set_yticks(y, order, fontsize=9)
    ax.set_ylim(len(order) - 0.4, -0.6)
    _plain(ax)


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)
