"""Transferred labels by group, and sizes of the prediction sets."""

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._data import read
from dice._data.colors import SAFE, UNASSIGNED, read_groups
from dice._data.read import Transferred, read_safe
from dice._keys import SafeKeys
from dice._plot import Axes, Drawn, draw, panels, plot

#: Inches per row and column of the matrix, and width of the bars.
_ROW, _COLUMN, _BAR = 0.26, 0.36, 1.5
_SIZES = {"1 label": SAFE[0], "2 labels": SAFE[4], "3 labels": SAFE[1], "4 or more": SAFE[5]}
_LEVELS = {"finest": SAFE[0], "coarser": SAFE[4], "unresolved": SAFE[5]}


@plot
def transfer(adata: AnnData, labels_key: str, *, groupby: str | None = None, key: str | None = None) -> Drawn:
    """Draw a matrix of transferred labels, the sizes of the prediction sets, and the levels of safe labels.

    With `groupby`, for example known labels or clusters, a row shows the labels of the cells of one group. Without
    `groupby`, a row shows the alternatives to one label: all labels in the prediction sets of the cells with this
    label.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.transfer_labels`.
    labels_key
        Column of the reference whose labels were transferred.
    groupby
        Column of ``obs`` with groups for the rows. None draws the labels in the prediction sets.
    key
        Key of the transferred labels. None uses ``f"{labels_key}_dice"``.
    show, save, return_fig
        As in scanpy: whether to show the figure, a file to save it to, and whether to return it. None shows the figure
        if the backend can show figures.

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Writes nothing.

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
    label, order = np.asarray(found.label, dtype=object), [*found.names, UNASSIGNED]
    if groupby is None:
        groups, title = label, "labels in the sets, % of a row"
        shares = pd.DataFrame(found.sets.astype(float), columns=found.names).groupby(groups).mean()
    else:
        colors = read_groups(adata, groupby)
        names = [*colors.names, "NA"]
        groups, title = np.array(names, dtype=object)[colors.codes], "transferred labels, % of a row"
        shares, order = pd.crosstab(groups, label, normalize="index"), [*order, *names]
    rows = [name for name in dict.fromkeys(order) if name in shares.index]
    # Labels of the reference that no cell has are columns of zeros.
    columns = [*found.names, *shares.columns.intersection([UNASSIGNED])]
    shares = shares.reindex(index=rows, columns=columns, fill_value=0)
    bars = [("size of the sets", np.clip(found.sets.sum(1), 1, len(_SIZES)) - 1, _SIZES)]
    keys = SafeKeys(f"{labels_key}_dice" if key is None else key)
    if keys.uns in read.names(adata, "uns"):
        tree, nodes, _ = read_safe(adata, keys)
        level = np.select([nodes < tree.n_labels, nodes < len(tree.names) - 1], [0, 1], 2)
        bars.append(("safe labels", level, _LEVELS))
    widths, height = [max(2.0, len(columns) * _COLUMN), *[_BAR] * len(bars)], max(1.6, len(rows) * _ROW)
    figure, axes = panels(len(widths), widths=widths, height=height, square=False)
    _matrix(axes[0], shares)
    draw.name_rows(axes[0], [f"{name} ({(groups == name).sum():,})" for name in rows])
    axes[0].set(title=title, ylabel=groupby or f"{labels_key}, transferred")
    for ax, (name, codes, inks) in zip(axes[1:], bars, strict=True):
        parts = pd.crosstab(groups, np.array(list(inks))[codes], normalize="index").reindex(shares.index)
        present = [part for part in inks if part in parts]
        parts[present].plot.barh(ax=ax, stacked=True, width=0.8, color=inks, legend=False)
        draw.name_rows(ax, [""] * len(parts))
        ax.set(title=name, xlabel="share of the cells of a row", ylabel="", xlim=(0, 1))
        ax.tick_params(axis="y", length=0)
        draw.add_legend(ax)
    return figure, axes


def _matrix(ax: Axes, shares: pd.DataFrame) -> None:
    values = shares.to_numpy()
    ax.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.set_xticks(range(values.shape[1]), shares.columns, rotation=45, ha="right", rotation_mode="anchor")
    for row, column in np.argwhere(values >= 0.005):
        share = values[row, column]
        ink = "white" if share > 0.6 else "black"
        ax.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=ink)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
