"""Projection and denoised embedding side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dice._docs import shared
from dice._errors import InputError
from dice._plot.colors import REFERENCE, read_colors
from dice._plot.figure import finish, panels
from dice._plot.layout import check_neighbors, layout, layout_on, reference_map
from dice._plot.panels import (
    COLORBAR_WIDTH,
    add_colorbar,
    add_legend,
    dots,
    legend_width,
    scatter_colored,
    scatter_reference,
    style_map,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from anndata import AnnData
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure

    from dice._plot.colors import Colors, Palette
    from dice._plot.layout import Coordinates

TITLES = {"X_dice_pca": "PCA projection", "X_dice": "DICE"}


@shared
def comparison(
    adata: AnnData,
    *,
    color: str | Sequence[str] | None = None,
    use_rep: str | Sequence[str] = ("X_dice_pca", "X_dice"),
    reference: AnnData | None = None,
    reference_rep: str = "X_dice_pca",
    neighbors_key: str | None = None,
    titles: Sequence[str] | None = None,
    n_neighbors: int = 15,
    random_state: int = 0,
    size: float | None = None,
    palette: Palette | None = None,
    ncols: int | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw UMAPs of the projection and of the denoised embedding side by side.

    Every representation gets a column, every colour a row. The coordinates are computed once and
    reused by later calls with the same parameters, also for a subset of the cells; scanpy's own
    ``X_umap`` and ``neighbors`` are neither needed nor touched.

    Parameters
    ----------
    adata
        Annotated data with the representations in ``obsm``, as of :func:`dice.tl.denoise`.
    color
        Column or columns of ``obs``, or genes; None draws all cells alike. Labels have the colours
        of ``uns[f"{color}_colors"]`` where present, numbers the colour map that `palette` names;
        cells without a value are light grey.
    use_rep
        Key or keys of ``obsm``.
    reference
        The reference that the query was denoised with. Its map is then shared by all panels, with
        the reference in grey and the query placed upon it; `reference` is not written to.
    reference_rep
        Key of ``reference.obsm`` to fit that map on.
    neighbors_key
        Neighbour graph in ``uns``, as of :func:`dice.tl.neighbors` or :func:`scanpy.pp.neighbors`,
        to lay out for the representation that it was computed on; not used with `reference`.
    titles
        One title per representation.
    {umap}
    {palette}
    ncols
        Panels in a row, by default one per representation.
    {figure}

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Sets, unless
    `adata` is a view:

    ``adata.obsm["X_dice_umap"]`` (n_obs, 2) float32
        Coordinates of ``obsm["X_dice"]``; likewise for other representations. With `reference`,
        ``adata.obsm["X_dice_umap_reference"]``.
    ``adata.uns["X_dice_umap"]``
        The parameters and fingerprints of the cells that these coordinates hold for.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> figure = dice.pl.comparison(cells, use_rep="U_true", color="cell_type", return_fig=True)
    >>> cells.obsm["U_true_umap"].shape
    (300, 2)
    """
    keys = [use_rep] if isinstance(use_rep, str) else list(use_rep)
    if not keys:
        raise InputError("use_rep is empty: name at least one key of adata.obsm.")
    names = [TITLES.get(key, key) for key in keys] if titles is None else list(titles)
    if len(names) != len(keys):
        raise InputError(f"There are {len(names)} titles for {len(keys)} representations: pass one each.")
    rows = _rows(adata, color, palette)
    options: dict[str, Any] = {"n_neighbors": n_neighbors, "random_state": random_state}
    ground = None
    if reference is None and neighbors_key is not None:
        check_neighbors(adata, neighbors_key, keys)
    if reference is None:
        maps = [layout(adata, key, neighbors_key=neighbors_key, **options) for key in keys]
    else:
        onto, digest = reference_map(reference, reference_rep, **options)
        maps = [layout_on(adata, key, onto, digest, **options) for key in keys]
        ground = onto.coordinates
    figure, axes = _draw(rows, list(zip(names, maps, strict=True)), ground, ncols, size)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _rows(adata: AnnData, color: str | Sequence[str] | None, palette: Palette | None) -> list[Colors | None]:
    """Colours of every row of panels."""
    keys = [color] if isinstance(color, str) else list(color or [])
    return [read_colors(adata, key, palette) for key in keys] or [None]


def _draw(
    rows: list[Colors | None],
    maps: list[tuple[str, Coordinates]],
    ground: Coordinates | None,
    ncols: int | None,
    size: float | None,
) -> tuple[Figure, list[Axes]]:
    """All panels; `maps` holds titles and coordinates, `ground` those of the reference."""
    figure, axes = panels(
        len(rows) * len(maps),
        ncols=len(maps) if ncols is None else ncols,
        margin=max(row_margin(colors, ground) for colors in rows),
        shared=ground is not None,
    )
    for i, colors in enumerate(rows):
        draw_row(axes[i * len(maps) : (i + 1) * len(maps)], colors, maps, ground, size)
    return figure, axes


def draw_row(
    axes: list[Axes],
    colors: Colors | None,
    maps: list[tuple[str, Coordinates]],
    ground: Coordinates | None,
    size: float | None,
) -> None:
    """Maps in the same colours, explained beside the last of them."""
    for ax, (title, where) in zip(axes, maps, strict=True):
        if ground is not None:
            scatter_reference(ax, ground)
        points = scatter_colored(ax, where, colors, size=size)
        style_map(ax, title=title, n_cells=len(where if ground is None else ground))
    _explain(axes[-1], points, colors, _grey(ground))


def _grey(ground: Coordinates | None) -> dict[str, str]:
    return {} if ground is None else {"reference": REFERENCE}


def row_margin(colors: Colors | None, ground: Coordinates | None) -> float:
    """Inches that the legend or the colour bar of a row needs."""
    bar = COLORBAR_WIDTH if colors is not None and colors.labels is None else 0.0
    return max(bar, legend_width({} if colors is None else colors.legend), legend_width(_grey(ground)))


def _explain(ax: Axes, points: PathCollection, colors: Colors | None, grey: dict[str, str]) -> None:
    """Legend or colour bar beside the last panel of a row."""
    entries = grey if colors is None else colors.legend | grey
    numbers = colors is not None and colors.labels is None
    if colors is not None and numbers:
        add_colorbar(ax, points, label=colors.name)
    if entries:
        title = "" if colors is None or numbers else colors.name
        add_legend(ax, dots(entries), title=title, low=numbers)
