"""Novelty of every cell: which ones the reference does not know, and what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dice._docs import shared
from dice._keys import NoveltyKeys
from dice._plot.colors import read_groups, read_numbers
from dice._plot.distribution import map_and_distribution
from dice._plot.figure import finish
from dice._plot.layout import layout
from dice._plot.panels import point_size

if TYPE_CHECKING:
    import os

    from anndata import AnnData
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from dice._plot.colors import Colors, Palette
    from dice._plot.layout import Coordinates

RING = "#D55E00"


@shared
def novelty(
    adata: AnnData,
    *,
    groupby: str | None = None,
    key: str = "dice_novelty",
    use_rep: str = "X_dice_pca",
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
    color_map
        Matplotlib's colour map for the novelty.
    {palette}
    {figure}

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Sets, unless
    `adata` is a view, the coordinates as :func:`dice.pl.comparison` does:
    ``adata.obsm["X_dice_pca_umap"]`` (n_obs, 2) float32 and ``adata.uns["X_dice_pca_umap"]``.

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
    where = layout(adata, use_rep, n_neighbors=n_neighbors, random_state=random_state)
    called = adata.obs[NoveltyKeys(key).flag].fillna(False).to_numpy(dtype=bool)
    notes = None if groups is None else _shares(groups, called)
    title = f"{called.sum()} of {len(called)} cells are novel" if title is None else title
    figure, axes = map_and_distribution(where, numbers, groups, title=title, size=size, notes=notes)
    _rings(axes[0], where, called, size)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _shares(groups: Colors, called: NDArray[np.bool_]) -> dict[str, str]:
    """Share of the novel cells of every label that cells have."""
    codes = {name: groups.values == i for i, name in enumerate(groups.labels or {})}
    codes["NA"] = groups.missing
    return {name: f"({called[mine].mean():.0%})" for name, mine in codes.items() if mine.any()}


def _rings(ax: Axes, where: Coordinates, called: NDArray[np.bool_], size: float | None) -> None:
    """Novel cells in rings that leave their colour visible."""
    area = 3 * (point_size(len(where)) if size is None else size) + 6
    at = where[called]
    look: dict[str, Any] = {"facecolors": "none", "edgecolors": RING, "linewidths": 0.7, "zorder": 4}
    ax.scatter(at[:, 0], at[:, 1], s=area, label="novel", rasterized=len(at) > 2_000, **look)
    ax.text(1, 0, "o novel", color=RING, fontsize=9, transform=ax.transAxes, ha="right", va="top")
