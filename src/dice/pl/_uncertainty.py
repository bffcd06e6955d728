"""Uncertainty of cells on a map and by label."""

from __future__ import annotations

import os
from typing import Any

from anndata import AnnData

from dice._data.colors import Palette, read_groups, read_numbers
from dice._data.graph import layout, umap_options
from dice._docs import shared
from dice._plot.distribution import map_and_distribution
from dice._plot.figure import finish
from dice._types import Seed


@shared
def uncertainty(
    adata: AnnData,
    *,
    groupby: str | None = None,
    key: str = "dice_uncertainty",
    use_rep: str = "X_dice",
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
    """Draw the embedding coloured by uncertainty, and the distribution of uncertainty per label.

    Labels are sorted by their median, the least certain first. Boxes contain the middle 50 % of the cells and whiskers
    the middle 90 %. Dots are medians.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.denoise`.
    groupby
        Column of ``obs`` with labels. None draws one histogram of all cells.
    key
        Column of ``obs`` with the uncertainty, or with other numbers.
    use_rep
        Key of ``obsm`` to draw.
    title
        Title of the map, by default `key`.
    {umap}
    {size}
    color_map
        Matplotlib's colour map for the uncertainty.
    {palette}
    {figure}

    Returns
    -------
    {coordinates}

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> cells.obs["dice_uncertainty"] = abs(cells.obsm["U_true"]).mean(axis=1)
    >>> figure = dice.pl.uncertainty(cells, groupby="cell_type", use_rep="U_true", return_fig=True)
    >>> len(figure.axes)
    2
    """
    numbers = read_numbers(adata, key, color_map, step="dice.tl.denoise")
    groups = None if groupby is None else read_groups(adata, groupby, palette)
    where = layout(adata, use_rep, **umap_options(n_neighbors, random_state))
    title = key if title is None else title
    figure, axes = map_and_distribution(where, numbers, groups, title=title, size=size)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)
