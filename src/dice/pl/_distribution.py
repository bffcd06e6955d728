"""Map of a number per cell, such as uncertainty or novelty, and the distribution of this number by label."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from anndata import AnnData

from dice._data import read
from dice._data.colors import MISSING, SAFE, Colors, read_groups, read_numbers
from dice._data.graph import layout
from dice._keys import NoveltyKeys
from dice._plot import PANEL, Axes, Drawn, draw, panels, plot
from dice._types import Floats, Mask

#: Function that writes each column.
WRITTEN_BY = {"dice_uncertainty": "dice.tl.denoise", "dice_novelty": "dice.tl.novelty"}
#: Height of a row in inches, and the colour of novel cells and groups.
ROW, RING = 0.16, "#D55E00"
#: Quantiles at the ends of whiskers, boxes and in the middle.
BOX_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@plot
def distribution(
    adata: AnnData, color: str = "dice_uncertainty", *, groupby: str | None = None, use_rep: str | None = None
) -> Drawn:
    """Draw a map of the cells coloured by a number, and the distribution of this number per label.

    Labels are sorted by their median, the largest first. Boxes contain the middle 50 % of the cells and whiskers the
    middle 90 %. Dots are medians.

    After :func:`dice.tl.novelty`, novel cells have a ring, and the share of novel cells is written beside every label.
    Groups that were called novel as a whole (``dice.tl.novelty(groupby=)``) are named on the map. Cells of such a group
    may have low scores, because a group may be called novel by comparison with other groups of the query.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.denoise` or :func:`dice.tl.novelty`.
    color
        Column of ``obs`` with numbers, for example ``"dice_uncertainty"`` or ``"dice_novelty"``.
    groupby
        Column of ``obs`` with labels. None draws the groups that were tested for novelty, or else a histogram of all
        cells.
    use_rep
        Key of ``obsm`` to draw. None uses ``"X_dice"``, but ``"X_dice_pca"`` for novelty, because denoising may move
        unknown cells onto known cells.
    show, save, return_fig
        As in scanpy: whether to show the figure, a file to save it to, and whether to return it. None shows the figure
        if the backend can show figures.

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Also sets the coordinates as
    :func:`dice.pl.comparison` does, unless `adata` is a view: ``adata.obsm[f"{use_rep}_umap"]`` (n_obs, 2) float32 and
    ``adata.uns[f"{use_rep}_umap"]``.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> cells.obs["dice_uncertainty"] = abs(cells.obsm["U_true"]).mean(axis=1)
    >>> figure = dice.pl.distribution(cells, groupby="cell_type", use_rep="U_true", return_fig=True)
    >>> len(figure.axes)
    2
    """
    numbers = read_numbers(adata, color, step=WRITTEN_BY.get(color))
    keys, columns = NoveltyKeys(color), read.names(adata, "obs")
    tested = _tested(adata, keys, columns)
    groupby = tested if groupby is None else groupby
    groups = None if groupby is None else read_groups(adata, groupby)
    novel = _flags(adata, keys.flag) if keys.flag in columns else None
    use_rep = use_rep or ("X_dice" if novel is None else "X_dice_pca")
    where = layout(adata, use_rep)
    rows = [] if groups is None else _rows(groups, numbers, novel)
    # The map is as high as the boxes, so that no space is empty.
    height = max(PANEL, ROW * len(rows))
    figure, axes = panels(2, widths=(height, PANEL), height=height, square=False)
    draw.row(axes[:1], numbers, [(draw.TITLES.get(use_rep, use_rep), where)])
    axes[1].set_xlabel(color)
    if groups is None:
        axes[1].hist(numbers.values[~numbers.missing], bins=30, color=SAFE[0])
        axes[1].set_ylabel("cells")
    else:
        _boxes(axes[1], rows)
    if novel is not None:
        _mark(axes[0], where, novel)
    if novel is not None and tested is not None:
        flagged = _flags(adata, keys.group_flag)
        named = [(name, RING, mine) for name, _, mine in read_groups(adata, tested).groups if flagged[mine].any()]
        draw.name_groups(axes[0], named, where, ink=RING)
    return figure, axes


def _tested(adata: AnnData, keys: NoveltyKeys, columns: list[str]) -> str | None:
    """Return the column whose groups were tested for novelty, or None."""
    record = read.record(adata, keys.uns)
    groupby = record.get("call", {}).get("groupby") if isinstance(record, Mapping) else None
    return groupby if keys.group_flag in columns and groupby in columns else None


def _flags(adata: AnnData, key: str) -> Mask:
    return read.column(adata, key).fillna(False).to_numpy(dtype=bool)


def _mark(ax: Axes, where: Floats, novel: Mask) -> None:
    """Draw rings around novel cells, and write their number as the title."""
    ax.set_title(f"{novel.sum()} of {len(novel)} cells are novel")
    if novel.any():
        look: dict[str, Any] = {"facecolors": "none", "edgecolors": RING, "linewidths": 0.7}
        area = 3 * draw.point_size(len(where)) + 6
        draw.add_legend(ax, [draw.scatter(ax, where[novel], label="novel", size=area, zorder=4, **look)], low=True)


def _rows(groups: Colors, numbers: Colors, novel: Mask | None) -> list[tuple[str, str, Floats]]:
    """Return text, colour and quantiles of all labels, the largest median first and cells without a label last."""
    rows = []
    for name, color, mine in groups.groups:
        share = "" if novel is None else f" ({novel[mine].mean():.0%})"
        if len(values := numbers.values[mine & ~numbers.missing]):
            rows.append((name + share, color, np.quantile(values, BOX_QUANTILES)))
    return sorted(rows, key=lambda row: (row[1] == MISSING, -row[2][2]))


def _boxes(ax: Axes, rows: list[tuple[str, str, Floats]]) -> None:
    """Draw one box per label. Boxes are horizontal, to leave room for long names."""
    y = draw.name_rows(ax, [text for text, *_ in rows], edge=0.6)
    # ``boxplot`` is not used, because its option for horizontal boxes differs between matplotlib versions.
    low, left, middle, right, high = np.reshape([marks for *_, marks in rows], (-1, 5)).T
    ax.hlines(y, low, high, color="black", linewidth=0.8, zorder=2)
    look: dict[str, Any] = {"color": [color for _, color, _ in rows], "edgecolor": "black", "linewidth": 0.8}
    ax.barh(y, right - left, left=left, height=0.7, zorder=3, **look)
    # A dot is visible on every colour, and for labels with a single cell.
    ax.scatter(middle, y, s=22, color="white", edgecolor="black", linewidths=0.8, zorder=4)
