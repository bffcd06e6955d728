"""Genes that contribute to a label, and their expression in query and reference."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize

from dice._data.colors import SAFE
from dice._errors import InputError
from dice._plot import Axes, Drawn, draw, outermost, panels, plot

#: Width per gene, height of the bars and height of the dots, in inches.
_GENE, _BARS, _DOTS = 0.28, 0.8, 0.55
#: Area of a dot if all cells express the gene.
_AREA = 110.0
_FOR, _AGAINST = SAFE[0], SAFE[5]
_SHOWN = ("group", "label", "versus", "gene", "contribution", "mean", "reference_mean", "fraction")


@plot
def label_genes(table: pd.DataFrame) -> Drawn:
    """Draw the contributions of genes to a label, and a dot plot of their expression.

    Each group has a panel. Bars are contributions: blue supports the label and orange contradicts it. The dots below
    are as in scanpy's dot plots: the colour is the mean expression and the size is the share of cells that express the
    gene, in the group and in the reference cells with the label. With a prior alone this share is unknown, and squares
    show the mean expression.

    Parameters
    ----------
    table
        Data frame that :func:`dice.tl.label_genes` returned.
    show, save, return_fig
        As in scanpy: whether to show the figure, a file to save it to, and whether to return it. None shows the figure
        if the backend can show figures.

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Every group has two axes: bars,
    then dots.

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
    if absent or not len(table):
        found = f"{len(table)} rows without the columns {absent}"
        raise InputError(f"`table` must be a non-empty table from dice.tl.label_genes, got {found}.")
    groups = [rows for _, rows in table.groupby("group", sort=False)]
    most = max(map(len, groups))
    figure, axes = panels(len(groups), widths=max(most * _GENE, 1.2), height=[_BARS, _DOTS], square=False)
    means = table[["mean", "reference_mean"]].to_numpy()
    norm = Normalize(min(float(means.min()), 0.0), max(float(means.max()), 1e-6))
    look: dict[str, Any] = {"norm": norm, "cmap": "Reds", "edgecolors": "black", "linewidths": 0.5}
    for rows, top, bottom in zip(groups, axes[::2], axes[1::2], strict=True):
        first = top.get_subplotspec().is_first_col()  # type: ignore[union-attr]
        _bars(top, rows, most, first=first)
        points = _dots(bottom, rows, most, look, first=first)
    top, bottom = outermost(axes[::2]), outermost(axes[1::2])
    dots = [top.scatter([], [], s=_AREA * share, color="grey", label=f"{share:.0%}") for share in (0.2, 0.6, 1.0)]
    draw.add_legend(top, dots, title="cells with the gene")
    bar = figure.colorbar(points, cax=bottom.inset_axes((1.08, 0.4, 0.55, 0.2)), orientation="horizontal")
    bar.ax.set_title("mean expression", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return figure, axes


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
    title = title if versus == "others" else f"{title}, not {versus}"
    ax.set(title=title, ylabel="contribution" if first else "")
    ax.spines["bottom"].set_visible(False)


def _dots(ax: Axes, rows: pd.DataFrame, most: int, look: dict[str, Any], *, first: bool) -> Any:
    """Draw the mean expression and the share of expressing cells, for the query and, below it, for the reference."""
    x = np.arange(len(rows))
    for height, prefix in enumerate(("", "reference_")):
        share = rows[f"{prefix}fraction"].to_numpy()
        known = bool(np.isfinite(share).all())
        area, marker = (_AREA * share, "o") if known else (_AREA / 2, "s")
        means = rows[f"{prefix}mean"]
        points = ax.scatter(x, np.full(len(rows), height), c=means, s=area, marker=marker, **look)
    ax.set_xlim(-0.7, most - 0.3)
    ax.set_xticks(x, rows["gene"], rotation=90, fontsize=8)
    draw.name_rows(ax, ["query", "reference"] if first else ["", ""], edge=0.6)
    ax.tick_params(length=0)
    ax.spines[:].set(visible=True, linewidth=0.5)
    return points
