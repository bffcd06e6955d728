"""Novelty of every cell: which ones the reference does not know, and what they are called."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from anndata import AnnData

from dice._data import read
from dice._data.colors import Palette, read_groups, read_numbers
from dice._data.graph import layout, umap_options
from dice._docs import shared
from dice._keys import NoveltyKeys
from dice._plot.distribution import Marks, map_and_distribution
from dice._plot.figure import finish
from dice._types import Seed


@shared
def novelty(
    adata: AnnData,
    *,
    groupby: str | None = None,
    key: str = "dice_novelty",
    use_rep: str = "X_dice_pca",
    title: str | None = None,
    n_neighbors: int = 15,
    random_state: Seed = 0,
    size: float | None = None,
    color_map: str = "viridis",
    palette: Palette | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw the cells coloured by novelty with the novel ones ringed, and novelty per label.

    Labels come in the order of their median, the most novel first, with the share of their cells that
    were called novel. Groups that were called novel as a whole (``dice.tl.novelty(groupby=)``) have
    their name on the map, and in colour beside it. They are compared with the other groups of the query, so that the
    scores of their cells need not be high. The map is that of the projection: denoising may
    move unknown cells onto known ones.

    Parameters
    ----------
    adata
        Query, as of :func:`dice.tl.novelty`.
    groupby
        Column of ``obs`` with labels; None draws the groups that were tested, and one histogram of all
        cells if there were none.
    key
        Column of ``obs`` with the novelty.
    use_rep
        Key of ``obsm`` to draw.
    title
        Title of the map, by default the number of novel cells and groups.
    {umap}
    {size}
    color_map
        Matplotlib's colour map for the novelty.
    {palette}
    {figure}

    Returns
    -------
    {coordinates}

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> cells.obs["dice_novelty"] = abs(cells.obsm["U_true"]).mean(axis=1)
    >>> cells.obs["dice_novel"] = cells.obs["dice_novelty"] > 10
    >>> figure = dice.pl.novelty(cells, groupby="cell_type", use_rep="U_true", return_fig=True)
    >>> len(figure.axes)
    2
    """
    numbers = read_numbers(adata, key, color_map, step="dice.tl.novelty")
    keys = NoveltyKeys(key)
    tested = _tested(adata, keys)
    groupby = tested if groupby is None else groupby
    groups = None if groupby is None else read_groups(adata, groupby, palette)
    where = layout(adata, use_rep, **umap_options(n_neighbors, random_state))
    called = read.column(adata, keys.flag, step="dice.tl.novelty").fillna(False).to_numpy(dtype=bool)
    said, novel = f"{called.sum()} of {len(called)} cells", {}
    if tested is not None:
        colors = read_groups(adata, tested)
        named = {name: cells for name, _, cells in colors.groups if name in colors.names}
        flagged = read.column(adata, keys.group_flag).fillna(False).to_numpy(dtype=bool)
        novel = {name: cells for name, cells in named.items() if flagged[cells].any()}
        said += f" and {len(novel)} of {len(named)} groups"
    marks = Marks(called, novel, in_rows=groupby == tested)
    title = f"{said} are novel" if title is None else title
    figure, axes = map_and_distribution(where, numbers, groups, title=title, size=size, marks=marks)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _tested(adata: AnnData, keys: NoveltyKeys) -> str | None:
    """The column whose groups were tested as a whole, if it is still there."""
    record = read.record(adata, keys.uns)
    groupby = record.get("call", {}).get("groupby") if isinstance(record, Mapping) else None
    columns = read.names(adata, "obs")
    return groupby if keys.group_flag in columns and groupby in columns else None
