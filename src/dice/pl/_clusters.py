"""Clusters that two measurements agree on: why these, where they are, and how sure each cell is of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from anndata import AnnData

from dice._data import read
from dice._data.colors import SAFE, Palette, read_colors, read_numbers
from dice._data.layout import layout, umap_options
from dice._docs import shared
from dice._keys import ClusterKeys
from dice._plot import draw
from dice._plot.figure import finish, name_groups, panels, side
from dice._types import Seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE_STEP = "dice.tl.cluster"


@shared
def clusters(
    adata: AnnData,
    *,
    key: str = "dice_cluster",
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
    """Draw why there are so many clusters, the clusters on the map, and how sure every cell is of its own.

    The first panel has the agreement of second measurements by resolution, with its spread over pairs of them, the
    number of clusters below the points and the choice in colour. The map is that of the graph that was clustered.

    Parameters
    ----------
    adata
        Cells after :func:`dice.tl.cluster`.
    key
        Column of ``obs`` with the clusters.
    title
        Title of the map, by default the number of clusters.
    {umap}
    {size}
    color_map
        Matplotlib's colour map for the confidence.
    {palette}
    {figure}

    Returns
    -------
    {coordinates}

    Examples
    --------
    >>> import anndata, dice, numpy as np, scanpy as sc
    >>> rng = np.random.default_rng(0)
    >>> profiles = 3 * rng.gamma(0.3, size=(4, 300))
    >>> cells = anndata.AnnData(rng.poisson(profiles[np.arange(400) % 4]).astype("float32"))
    >>> sc.pp.normalize_total(cells, target_sum=1e4)
    >>> sc.pp.log1p(cells)
    >>> dice.tl.train_prior(cells, training=dice.Training(max_steps=20))
    >>> dice.tl.cluster(cells)
    >>> figure = dice.pl.clusters(cells, return_fig=True)
    >>> len(figure.axes)
    3
    """
    keys = ClusterKeys(key)
    record = read.record(adata, keys.uns, what="choice of clusters", step=CURVE_STEP)
    colors = read_colors(adata, keys.cluster, palette, step=CURVE_STEP)
    named = [group for group in colors.groups if group[0] in colors.names]
    sure = read_numbers(adata, keys.confidence, color_map, step=CURVE_STEP)
    options = umap_options(n_neighbors, random_state)
    where = layout(adata, record["params"]["use_rep"], neighbors_key=keys.uns, **options)
    height = side(len(named))
    figure, axes = panels(3, ncols=3, size=(height + 0.4, height), margin=draw.COLORBAR_WIDTH)
    _curve(axes[0], record)
    draw.scatter_colored(axes[1], where, colors, size=size)
    draw.style_map(axes[1], title=title or _counted(len(named)), n_cells=len(where))
    # No legend: on the map, sixty names can still be told apart.
    name_groups(axes[1], named, where)
    draw.row([axes[2]], sure, [("kept by halves of the counts", where)], None, size)
    axes[2].collections[-1].set_clim(0, 1)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _counted(n_clusters: int) -> str:
    return f"{n_clusters} cluster{'' if n_clusters == 1 else 's'}"


def _curve(ax: Axes, record: Mapping[str, Any]) -> None:
    """Agreement by resolution, the number of clusters beside every third point, and the choice."""
    curve, choice = record["curve"], record["choice"]
    resolution, agreement, spread = (np.asarray(curve[name]) for name in ("resolution", "agreement", "spread"))
    ax.fill_between(resolution, agreement - spread, agreement + spread, color=SAFE[0], alpha=0.2, linewidth=0)
    ax.plot(resolution, agreement, color=SAFE[0], marker="o", markersize=3, linewidth=1.2)
    ax.axhline(record["call"]["min_agreement"], color="black", linestyle=":", linewidth=1)
    for at, level, number in list(zip(resolution, agreement, curve["n_clusters"], strict=True))[::3]:
        ax.annotate(f"{number:.0f}", (at, level), (0, -12), textcoords="offset points", ha="center", fontsize=8)
    if "resolution" in choice:
        ax.scatter(choice["resolution"], choice["agreement"], s=60, color=SAFE[5], zorder=4)
        # To the right of the choice the curve falls, and leaves room.
        label = _counted(int(choice["n_clusters"]))
        ax.annotate(
            label, (choice["resolution"], choice["agreement"]), (8, 4), textcoords="offset points", fontsize=9,
            color=SAFE[5],
        )  # fmt: skip
    ax.set_box_aspect(1)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.text(0.03, 0.03, "numbers: clusters of a measurement", transform=ax.transAxes, fontsize=8)
    ax.set_ylim(-0.05, 1.1)
    ax.set_title("agreement of second measurements", fontsize=11)
    draw.plain(ax, x="resolution", y="adjusted Rand index")
