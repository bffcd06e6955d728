"""Scores of representations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dice._data.colors import SAFE
from dice._docs import shared
from dice._errors import InputError
from dice._plot import draw
from dice._plot.figure import finish, panels

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes

#: Titles of the columns.
NAMES = {
    "ari": "ARI (best resolution)",
    "ari_fixed": "ARI (fixed resolution)",
    "kmeans_ari": "ARI (k-means)",
    "nmi": "NMI",
    "nmi_max": "NMI (max)",
    "v_measure": "V-measure",
    "clisi": "cLISI (lower is better)",
    "ilisi": "iLISI",
}


@shared
def evaluation(
    table: pd.DataFrame,
    *,
    columns: Sequence[str] = ("silhouette", "ari", "nmi", "clisi"),
    ncols: int = 4,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw scores of :func:`dice.tl.evaluate`, one panel per column.

    Each row of the table is a bar. If the index of the table holds numbers, for example values of rho, each row is a
    point of a curve.

    Parameters
    ----------
    table
        Data frame of :func:`dice.tl.evaluate`, or several of them concatenated, with an index of your own.
    columns
        Columns to draw.
    ncols
        Number of panels in a row.
    {figure}

    Returns
    -------
    {axes}

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> table = dice.tl.evaluate(cells, "cell_type", use_rep="U_true")
    >>> figure = dice.pl.evaluation(table, columns=["silhouette", "ari"], return_fig=True)
    >>> [ax.get_title() for ax in figure.axes]
    ['silhouette', 'ARI (best resolution)']
    """
    absent = [column for column in columns if column not in table]
    if absent or not len(columns):
        raise InputError(f"`columns` must be some of {list(table.columns)}, got {absent}.")
    if not len(table):
        raise InputError("The table has no rows: call dice.tl.evaluate with at least one representation.")
    numbers = pd.api.types.is_numeric_dtype(table.index)
    height = 2.6 if numbers else 0.9 + 0.32 * len(table)
    figure, axes = panels(len(columns), ncols=ncols, size=(2.6, height), margin=0.0 if numbers else 1.0, square=False)
    for at, (ax, column) in enumerate(zip(axes, columns, strict=True)):
        if numbers:
            _curve(ax, table[column].sort_index())
        else:
            _bars(ax, table[column], named=at % ncols == 0)
        ax.set_title(NAMES.get(column, column), fontsize=10)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _curve(ax: Axes, values: pd.Series[Any]) -> None:
    """Draw points at equal distances, because tried values are rarely spread evenly."""
    position = np.arange(len(values))
    ax.plot(position, values.to_numpy(), color=SAFE[0], marker="o", markersize=5)
    ax.set_xticks(position, [f"{value:g}" for value in values.index], fontsize=9)
    draw.plain(ax, x=str(values.index.name or ""))


def _bars(ax: Axes, values: pd.Series[Any], *, named: bool) -> None:
    names = [draw.TITLES.get(str(name), str(name)) if named else "" for name in values.index]
    position = draw.name_rows(ax, names, edge=0.6)
    drawn = ax.barh(position, values.to_numpy(), height=0.7, color=[SAFE[i % len(SAFE)] for i in position])
    ax.bar_label(drawn, fmt="%.3f", padding=3, fontsize=8)
    ax.margins(x=0.25)
    ax.axvline(0, color="black", linewidth=0.8)
    draw.plain(ax)
