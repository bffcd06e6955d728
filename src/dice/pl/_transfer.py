"""Transferred labels by group, and sizes of the prediction sets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._data import read
from dice._data.colors import SAFE, UNASSIGNED, read_groups
from dice._data.read import Transferred, read_safe
from dice._docs import shared
from dice._keys import SafeKeys
from dice._plot import draw
from dice._plot.figure import finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Inches per row and column.
_ROW, _COLUMN = 0.26, 0.36
#: Sets of this size and larger share a colour.
_MANY = 4
_SIZES = {"1 label": SAFE[0], "2 labels": SAFE[4], "3 labels": SAFE[1], "4 or more": SAFE[5]}
_LEVELS = {"finest": SAFE[0], "coarser": SAFE[4], "unresolved": SAFE[5]}


@shared
def transfer(
    adata: AnnData,
    labels_key: str,
    *,
    groupby: str | None = None,
    key: str | None = None,
    title: str | None = None,
    color_map: str = "Blues",
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw a matrix of transferred labels, the sizes of the prediction sets, and the levels of safe labels.

    With `groupby`, for example known labels or clusters, a row shows the labels of the cells of one group. Without it,
    a row shows the labels in the prediction sets of the cells with one label, that is, the alternatives.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.transfer_labels`.
    labels_key
        Column of the reference whose labels were transferred.
    groupby
        Column of ``obs`` with groups for the rows. None draws the labels in the sets.
    {transferred}
    title
        Title of the matrix.
    color_map
        Matplotlib's colour map for shares.
    {figure}

    Returns
    -------
    {axes} Writes nothing.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    >>> simple = dice.Classifier(representation="projection")
    >>> dice.tl.transfer_labels(query, reference, "cell_type", classifier=simple)
    >>> figure = dice.pl.transfer(query, "cell_type", groupby="cell_type", return_fig=True)
    >>> len(figure.axes) >= 2
    True
    """
    found = Transferred.of(adata, labels_key, key)
    order = dict.fromkeys([*found.names, UNASSIGNED])
    if groupby is None:
        groups, columns = pd.Series(found.label.astype(object)), pd.DataFrame(found.sets, columns=found.names)
        title = "labels in the sets, % of a row" if title is None else title
    else:
        colors = read_groups(adata, groupby)
        names = [*colors.names, "NA"]
        groups, order = pd.Series(np.array(names, dtype=object)[colors.codes]), order | dict.fromkeys(names)
        columns = pd.get_dummies(pd.Series(found.label.astype(object)))
        # A label of the reference that no cell has is a column of zeros.
        columns = columns.reindex(columns=columns.columns.union(found.names), fill_value=False)
        title = "transferred labels, % of a row" if title is None else title
    shares = columns.astype(float).groupby(groups.to_numpy()).mean()
    shares = shares.reindex(index=_ordered(shares.index, order), columns=_ordered(shares.columns, order))
    sizes = pd.Series(np.minimum(found.sets.sum(1), _MANY))
    counts = pd.crosstab(groups.to_numpy(), sizes.to_numpy()).reindex(index=shares.index, columns=range(1, _MANY + 1))
    bars = [(counts.fillna(0), _SIZES, "size of the sets")]
    keys = SafeKeys(f"{labels_key}_dice" if key is None else key)
    if keys.uns in read.names(adata, "uns"):
        tree, nodes, _ = read_safe(adata, keys)
        level = np.select([nodes < tree.n_labels, nodes < len(tree.names) - 1], [0, 1], 2)
        levels = pd.crosstab(groups.to_numpy(), level).reindex(index=shares.index, columns=range(3))
        bars.append((levels.fillna(0), _LEVELS, "safe labels"))
    figure, axes = _draw(shares, bars, title, color_map)
    axes[0].set_ylabel(groupby or f"{labels_key}, transferred", fontsize=9)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _ordered(names: pd.Index, order: Iterable[str]) -> list[str]:
    """Return the names in a given order."""
    return [name for name in order if name in names]


def _draw(
    shares: pd.DataFrame, bars: list[tuple[pd.DataFrame, dict[str, str], str]], title: str, color_map: str
) -> tuple[Figure, list[Axes]]:
    import matplotlib.pyplot as plt

    n_rows, n_columns = shares.shape
    words = 0.075 * max(map(len, shares.index), default=0), 0.055 * max(map(len, shares.columns), default=0)
    wide, each, high = max(2.0, n_columns * _COLUMN), 2.2, max(1.6, n_rows * _ROW)
    size = wide + len(bars) * (each + 1.2) + words[0], high + words[1] + 1.0
    figure = plt.figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(1, 1 + len(bars), width_ratios=(wide, *[each] * len(bars)), sharey=True))
    _matrix(axes[0], shares, color_map)
    axes[0].set_title(title, fontsize=11)
    for ax, given in zip(axes[1:], bars, strict=True):
        _bars(ax, *given)
    total = bars[0][0].sum(axis=1).astype(int)
    draw.name_rows(axes[0], [f"{name} ({total[name]:,})" for name in shares.index])
    return figure, axes


def _matrix(ax: Axes, shares: pd.DataFrame, color_map: str) -> None:
    values = shares.to_numpy()
    ax.imshow(values, cmap=color_map, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.set_xticks(range(values.shape[1]), shares.columns, rotation=45, ha="right", rotation_mode="anchor", fontsize=9)
    for row, column in np.argwhere(values >= 0.005):
        share = values[row, column]
        ink = "white" if share > 0.6 else "black"
        ax.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=ink)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def _bars(ax: Axes, counts: pd.DataFrame, colors: dict[str, str], title: str) -> None:
    """Shares of the cells of every row, stacked."""
    share = counts.to_numpy() / np.maximum(counts.sum(axis=1).to_numpy()[:, None], 1)
    left = np.cumsum(share, axis=1) - share
    for i, (name, color) in enumerate(colors.items()):
        if share[:, i].any():
            ax.barh(range(len(counts)), share[:, i], left=left[:, i], height=0.8, color=color, label=name)
    ax.set_xlim(0, 1)
    ax.set_title(title, fontsize=11)
    draw.plain(ax, x="share of the cells of a row")
    ax.tick_params(axis="y", length=0, labelleft=False)
    if len(counts):
        ax.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=9)
