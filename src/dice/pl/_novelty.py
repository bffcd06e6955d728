"""Novelty of every cell: which ones the reference does not know, and what they are called."""

from __future__ import annotations

import os
from typing import Any

from anndata import AnnData

from dice._anndata import read
from dice._docs import shared
from dice._keys import NoveltyKeys
from dice._plot.colors import Palette, read_groups, read_numbers
from dice._plot.distribution import map_and_distribution
from dice._plot.figure import finish
from dice._plot.layout import layout, umap_options
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
    were called novel. The map is that of the projection: denoising may move unknown cells onto known
    ones.

    Parameters
    ----------
    adata
        Query, as of :func:`dice.tl.novelty`.
    groupby
        Column of ``obs`` with labels; None draws one histogram of all cells.
    key
        Column of ``obs`` with the novelty.
    use_rep
        Key of ``obsm`` to draw.
    title
        Title of the map, by default the number of novel cells.
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
    groups = None if groupby is None else read_groups(adata, groupby, palette)
    where = layout(adata, use_rep, **umap_options(n_neighbors, random_state))
    called = read.column(adata, NoveltyKeys(key).flag, step="dice.tl.novelty").fillna(False).to_numpy(dtype=bool)
    title = f"{called.sum()} of {len(called)} cells are novel" if title is None else title
    figure, axes = map_and_distribution(where, numbers, groups, title=title, size=size, ringed=called)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)
