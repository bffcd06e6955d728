"""Results of a query in its tissue."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from anndata import AnnData

from dice._arguments import known_key, said
from dice._data import read
from dice._data.colors import read_colors
from dice._errors import InputError
from dice._plot import PANEL, Drawn, draw, panels, plot


@plot
def spatial(
    adata: AnnData,
    color: str | Sequence[str],
    *,
    spatial_key: str = "spatial",
    batch_key: str | None = None,
) -> Drawn:
    """Draw cells at their places in the tissue, coloured for example by label, status or safe label.

    Parameters
    ----------
    adata
        The query, for example the table of a SpatialData object.
    color
        Column of ``obs`` or gene, or several: for example ``["cell_type_dice", "cell_type_dice_status"]``.
    spatial_key
        Key of ``obsm`` with the coordinates.
    batch_key
        Column of ``obs`` with sections. Each section has a panel of its own.
    show, save, return_fig
        As in scanpy: whether to show the figure, a file to save it to, and whether to return it. None shows the figure
        if the backend can show figures.

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> cells.obsm["spatial"] = cells.obsm["U_true"][:, :2]
    >>> axes = dice.pl.spatial(cells, "cell_type", show=False)
    >>> len(axes)
    1
    """
    names = [color] if isinstance(color, str) else list(color)
    where = read.embedding(adata, known_key(spatial_key, read.names(adata, "obsm"), "key", "adata.obsm"))
    if where.shape[1] < 2:
        raise InputError(f"adata.obsm[{spatial_key!r}] must have two or more columns, got {where.shape[1]}.")
    if not names:
        raise InputError(f"`color` must be one or more columns of adata.obs or genes, got {said(color)}.")
    columns, sections = [read_colors(adata, name) for name in names], [("", np.ones(adata.n_obs, dtype=bool))]
    if batch_key is not None:
        batches = read.column(adata, batch_key, argument="batch_key").astype(str)
        sections = [(name, np.asarray(batches == name)) for name in sorted(batches.unique())]
    figure, axes = panels(len(names) * len(sections), widths=[PANEL] * len(sections))
    for ax, (colors, (section, cells)) in zip(axes, product(columns, sections), strict=True):
        points = draw.scatter_colored(ax, where[cells], replace(colors, values=colors.values[cells]))
        ax.set_title(", ".join(filter(None, [colors.name, section])))
        # As in an image, the second coordinate grows downwards.
        ax.set(xticks=[], yticks=[], aspect="equal", ylim=ax.get_ylim()[::-1])
        ax.spines[:].set_visible(False)
        known = colors.values[~colors.missing]
        if colors.labels is None and known.size:
            # The same colours mean the same numbers in all sections.
            points.set_clim(known.min(), known.max())
        if section != sections[-1][0]:
            continue
        if colors.labels is None:
            draw.add_colorbar(ax, points, label=colors.name)
        else:
            draw.add_legend(ax, draw.dots(colors.legend))
    return figure, axes
