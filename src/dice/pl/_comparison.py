"""Projection and denoised embedding side by side."""

from collections.abc import Sequence

from anndata import AnnData

from dice._data import read
from dice._data.colors import read_colors
from dice._data.graph import layout, reference_map
from dice._plot import Drawn, draw, panels, plot


@plot
def comparison(
    adata: AnnData,
    reference: AnnData | None = None,
    *,
    color: str | Sequence[str] | None = None,
    use_rep: str | Sequence[str] = ("X_dice_pca", "X_dice"),
    reference_rep: str = "X_dice_pca",
) -> Drawn:
    """Draw UMAPs of the projection and of the denoised embedding side by side.

    Each representation has a column and each colour has a row. With one representation, colours are side by side. The
    coordinates are computed once and used again by later calls, also for a subset of the cells. ``X_umap`` and
    ``neighbors`` of scanpy are neither needed nor changed.

    Parameters
    ----------
    adata
        AnnData object with representations in ``obsm``, for example after :func:`dice.tl.denoise`.
    reference
        The reference of the query. All panels then show the UMAP of the reference in grey, with the query placed on
        it. `reference` is not changed.
    color
        Columns of ``obs``, genes, or columns of tables in ``obsm``, for example ``"protein_dice:CD4"`` for a predicted
        protein. None draws all cells in one colour. Labels have the colours of ``uns[f"{color}_colors"]`` if they
        exist. Cells without a value are light grey.
    use_rep
        Key or keys of ``obsm``.
    reference_rep
        Key of ``reference.obsm`` that the map is computed from.
    show, save, return_fig
        As in scanpy: whether to show the figure, a file to save it to, and whether to return it. None shows the figure
        if the backend can show figures.

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Sets, unless `adata` is a view:

    ``adata.obsm["X_dice_umap"]`` (n_obs, 2) float32
        UMAP of ``obsm["X_dice"]``, and the same for other representations. With `reference`, the key is
        ``"X_dice_umap_reference"``.
    ``adata.uns["X_dice_umap"]``
        Fingerprints of the cells and of the reference, which show whether the coordinates can be used again.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> figure = dice.pl.comparison(cells, use_rep="U_true", color="cell_type", return_fig=True)
    >>> cells.obsm["U_true_umap"].shape
    (300, 2)
    """
    keys = read.as_keys(use_rep)
    shades: Sequence[str | None] = [color] if isinstance(color, str) else color or [None]
    rows = [None if key is None else read_colors(adata, key) for key in shades]
    onto = None if reference is None else reference_map(reference, reference_rep)
    ground = None if onto is None else onto.coordinates
    maps = [(draw.TITLES.get(key, key), layout(adata, key, onto)) for key in keys]
    n, side = len(maps), max(draw.side(len(draw.named_on_map(colors))) for colors in rows)
    widths = [side] * n if n > 1 else side
    figure, axes = panels(len(rows) * n, widths=widths, height=side, same_limits=ground is not None)
    for i, colors in enumerate(rows):
        draw.row(axes[i * n : (i + 1) * n], colors, maps, ground)
    return figure, axes
