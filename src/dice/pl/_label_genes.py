"""Genes that contribute to a label, and their expression in query and reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dice._arguments import whole_number
from dice._data.colors import SAFE
from dice._docs import shared
from dice._errors import InputError
from dice._plot import draw
from dice._plot.figure import finish

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

#: Inches per gene, and heights or widths of bars, dots, text and legend.
_GENE, _BARS, _DOTS, _WORDS, _LEGEND = 0.28, 0.8, 0.55, 0.95, 1.2
#: Area of a dot if all cells express the gene.
_AREA = 110.0
_FOR, _AGAINST = SAFE[0], SAFE[5]
_SHOWN = (
    "group", "label", "versus", "gene", "contribution", "mean", "reference_mean", "fraction", "reference_fraction",
)  # fmt: skip


@shared
def label_genes(
    table: pd.DataFrame,
    *,
    n_genes: int | None = None,
    ncols: int = 3,
    color_map: str = "Reds",
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw the contributions of genes to a label, and a dot plot of their expression.

    Each group has a panel. Bars are contributions: blue supports the label and orange contradicts it. The dots below
    are those of scanpy's dot plots: the colour is the mean expression and the size is the share of cells that express
    the gene, in the group and in the reference cells with the label. With a prior alone the share is unknown, and
    squares show the mean.

    Parameters
    ----------
    table
        Data frame of :func:`dice.tl.label_genes`.
    n_genes
        Number of genes per group, from the top of the table. None draws all genes.
    ncols
        Number of panels in a row.
    color_map
        Matplotlib's colour map for mean expression.
    {figure}

    Returns
    -------
    {axes} Each group has two axes: bars and dots.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    >>> dice.tl.transfer_labels(query, reference, "cell_type")
    >>> genes = dice.tl.label_genes(query, reference, "cell_type")
    >>> axes = dice.pl.label_genes(genes, show=False)
    >>> [ax.get_title() for ax in axes[::2]]
    ['Cluster 1', 'Cluster 2']
    """
    absent = [column for column in _SHOWN if column not in table]
    if absent:
        raise InputError(f"The table lacks the columns {absent}: pass a table of dice.tl.label_genes.")
    if not len(table):
        raise InputError("The table has no rows: call dice.tl.label_genes for groups with cells.")
    if n_genes is not None:
        table = table.groupby("group", sort=False).head(whole_number("n_genes", n_genes))
    figure, axes = _draw(table, whole_number("ncols", ncols), color_map)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _draw(table: pd.DataFrame, ncols: int, color_map: str) -> tuple[Figure, list[Axes]]:
    import matplotlib.pyplot as plt
    from matplotlib.colors import Normalize

    groups = [rows for _, rows in table.groupby("group", sort=False)]
    most, ncols = max(map(len, groups)), min(ncols, len(groups))
    n_rows, wide = -(-len(groups) // ncols), max(most * _GENE, 1.2)
    size = 1.0 + ncols * (wide + 0.4) + _LEGEND, n_rows * (_BARS + _DOTS + _WORDS)
    figure = plt.figure(figsize=size, layout="constrained")
    heights, widths = [_BARS, _DOTS] * n_rows, [wide] * ncols + [_LEGEND]
    grid = figure.subplots(2 * n_rows, ncols + 1, squeeze=False, height_ratios=heights, width_ratios=widths)
    means = table[["mean", "reference_mean"]].to_numpy()
    norm = Normalize(min(float(means.min()), 0.0), max(float(means.max()), 1e-6))
    pairs = [(grid[2 * row, column], grid[2 * row + 1, column]) for row in range(n_rows) for column in range(ncols)]
    for at, (rows, pair) in enumerate(zip(groups, pairs, strict=False)):
        _bars(pair[0], rows, most, first=at % ncols == 0)
        _dots(pair[1], rows, most, norm, color_map, first=at % ncols == 0)
    _legend(grid[0, -1], grid[1, -1], norm, color_map)
    for spare in [*(ax for pair in pairs[len(groups) :] for ax in pair), *grid[2:, -1]]:
        spare.remove()
    return figure, [ax for pair in pairs[: len(groups)] for ax in pair]


def _bars(ax: Axes, rows: pd.DataFrame, most: int, *, first: bool) -> None:
    """Draw the contribution of every gene."""
    values = rows["contribution"].to_numpy()
    ax.bar(range(len(rows)), values, width=0.7, color=np.where(values >= 0, _FOR, _AGAINST))
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_xlim(-0.7, most - 0.3)
    ax.set_xticks([])
    ax.locator_params(axis="y", nbins=3)
    group, label, versus = (str(rows[name].iloc[0]) for name in ("group", "label", "versus"))
    title = label if group == label else f"{group}: {label}"
    ax.set_title(title if versus == "others" else f"{title}, not {versus}", fontsize=10)
    draw.plain(ax, y="contribution" if first else "")
    ax.spines["bottom"].set_visible(False)


def _dots(ax: Axes, rows: pd.DataFrame, most: int, norm: Normalize, color_map: str, *, first: bool) -> None:
    """Draw the mean expression and the share of expressing cells, in the query and below it in the reference."""
    x = np.arange(len(rows))
    for height, prefix in enumerate(("", "reference_")):
        share = rows[f"{prefix}fraction"].to_numpy()
        known = bool(np.isfinite(share).all())
        ax.scatter(
            x, np.full(len(rows), height), c=rows[f"{prefix}mean"], s=_AREA * (share if known else 0.5), norm=norm,
            marker="o" if known else "s", cmap=color_map, edgecolors="black", linewidths=0.5,
        )  # fmt: skip
    ax.set_xlim(-0.7, most - 0.3)
    ax.set_xticks(x, rows["gene"], rotation=90, fontsize=8)
    draw.name_rows(ax, ["query", "reference"] if first else ["", ""], edge=0.6)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_linewidth(0.5)


def _legend(top: Axes, bottom: Axes, norm: Normalize, color_map: str) -> None:
    """Explain size and colour."""
    from matplotlib.cm import ScalarMappable

    shares = np.array([0.2, 0.6, 1.0])
    sizes = top.inset_axes((0.0, 0.2, 1.0, 0.35))
    sizes.scatter(range(len(shares)), np.zeros(len(shares)), s=_AREA * shares, color="grey", edgecolor="black")
    sizes.set_xticks(range(len(shares)), [f"{share:.0%}" for share in shares], fontsize=8)
    sizes.set(xlim=(-0.6, 2.6), yticks=[])
    sizes.set_title("cells with the gene", fontsize=9)
    sizes.tick_params(length=0)
    sizes.spines[:].set_visible(False)
    bar = top.figure.colorbar(
        ScalarMappable(norm, color_map), cax=bottom.inset_axes((0.0, 0.3, 1.0, 0.22)), orientation="horizontal"
    )
    bar.ax.set_title("mean expression", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.ax.locator_params(nbins=4)
    for ax in (top, bottom):
        ax.axis("off")
