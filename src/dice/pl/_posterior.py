"""Posterior samples of single cells over the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dice._docs import shared
from dice._errors import InputError, SlotError
from dice._keys import DenoiseKeys
from dice._plot.colors import REFERENCE, read_colors
from dice._plot.density import highest_density_region
from dice._plot.figure import finish, panels
from dice._plot.layout import check_same_space, read_embedding, reference_map
from dice._plot.panels import (
    add_legend,
    dots,
    legend_width,
    scatter,
    scatter_colored,
    scatter_reference,
    style_map,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from anndata import AnnData
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    from dice._plot.colors import Colors, Palette
    from dice._plot.layout import Coordinates, Map

#: Samples on a grey ground, and on a coloured one, where no label must have their colour.
SAMPLES, SAMPLES_ON_COLORS = "#D55E00", "#1A1A1A"
#: Fewer samples do not support a contour.
MIN_SAMPLES = 10


@shared
def posterior(
    adata: AnnData,
    cells: str | int | Sequence[str] | Sequence[int],
    *,
    reference: AnnData | None = None,
    level: float = 0.9,
    color: str | None = None,
    use_rep: str = "X_dice",
    reference_rep: str = "X_dice_pca",
    titles: Sequence[str] | None = None,
    n_neighbors: int = 15,
    random_state: int = 0,
    size: float | None = None,
    palette: Palette | None = None,
    ncols: int = 3,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw posterior samples of chosen cells over the map of the reference.

    One panel per cell: samples in one cluster mean that the data decide, samples in several that
    they do not. Areas on a UMAP have no meaning of their own. Writes nothing.

    Parameters
    ----------
    adata
        Query with samples, as of ``dice.tl.denoise(adata, reference, n_samples=200)``.
    cells
        Name or position of a cell, or several of them.
    reference
        The reference that the query was denoised with; None draws the query's own denoised cells.
    level
        Share of the samples inside the contour, which is drawn from 10 samples on.
    color
        Column of the reference's ``obs`` to colour it by; None draws it in grey.
    use_rep
        Key of the denoised embedding, beside its ``obsm[f"{use_rep}_samples"]`` and ``_pca``.
    reference_rep
        Key of ``reference.obsm`` to fit the map on.
    titles
        One title per cell, by default its name.
    n_neighbors
        Neighbours that UMAP looks at.
    random_state
        Seed of UMAP.
    size
        Area of the point of a sample; None fits it to their number.
    palette
        Colours of the labels of `color`: a list, a mapping, or the name of a colour map.
    ncols
        Panels in a row.
    ax
        Axes to draw into, for a single cell.
    {figure}

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False`` or `ax`.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> cells.obsm["U_pca"] = cells.obsm["U"] = cells.obsm["U_true"]
    >>> cells.obsm["U_samples"] = cells.obsm["U_true"][:, None].repeat(50, axis=1)
    >>> figure = dice.pl.posterior(cells, 0, use_rep="U", return_fig=True)
    """
    if not 0 < level < 1:
        raise InputError(f"level={level} is not a share: pass a number between 0 and 1.")
    keys, rows = DenoiseKeys(use_rep), _positions(adata, cells)
    names = list(adata.obs_names[rows]) if titles is None else list(titles)
    if len(names) != len(rows):
        raise InputError(f"There are {len(names)} titles for {len(rows)} cells: pass one each.")
    samples = _samples(adata, keys, rows)
    observed = read_embedding(adata, keys.projection)[rows]
    name, source, source_rep = "reference", reference, reference_rep
    if source is None:
        name, source, source_rep = "adata", adata, use_rep
    colors = None if color is None else read_colors(source, color, palette)
    fit: dict[str, Any] = {"n_neighbors": n_neighbors, "random_state": random_state, "name": name}
    onto, _ = reference_map(source, source_rep, **fit)
    check_same_space(samples.shape[2], onto, f"adata.obsm[{keys.samples!r}]")

    ground = "all cells" if reference is None else "reference"
    legend = _legend(colors, ground, level)
    margin = legend_width(str(handle.get_label()) for handle in legend)
    figure, axes = panels(len(rows), ax=ax, ncols=ncols, margin=margin, shared=True)
    for panel, title, cloud, start in zip(axes, names, samples, observed, strict=True):
        _ground(panel, onto, colors, ground)
        _cloud(panel, onto, cloud, start, level=level, size=size, color=_ink(colors))
        style_map(panel, title=title, n_cells=onto.n_cells)
    add_legend(axes[min(ncols, len(axes)) - 1], legend)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig, owned=ax is None)


def _ink(colors: Colors | None) -> str:
    return SAMPLES if colors is None else SAMPLES_ON_COLORS


def _positions(adata: AnnData, cells: Any) -> NDArray[np.intp]:
    wanted = [cells] if isinstance(cells, str | int | np.integer) else list(cells)
    if not wanted:
        raise InputError("cells is empty: name at least one cell of adata.obs_names.")
    if all(isinstance(cell, str) for cell in wanted):
        found = adata.obs_names.get_indexer_for(wanted)
        absent = [cell for cell in wanted if cell not in adata.obs_names]
    else:
        found = np.asarray(wanted)
        absent = [cell for cell in wanted if not _is_position(cell, adata.n_obs)]
    if absent or len(found) != len(wanted):
        raise InputError(
            f"cells names {absent[:3] or 'duplicated names'}, which are not cells of adata: pass "
            f"unique names of adata.obs_names or positions below {adata.n_obs}."
        )
    return np.asarray(found, dtype=np.intp)


def _is_position(cell: Any, n_cells: int) -> bool:
    whole = isinstance(cell, int | np.integer) and not isinstance(cell, bool | np.bool_)
    return whole and -n_cells <= cell < n_cells


def _samples(adata: AnnData, keys: DenoiseKeys, rows: NDArray[np.intp]) -> Coordinates:
    """Samples (cells, samples, latents) of the chosen cells, read without those of the others."""
    if keys.samples not in adata.obsm:
        raise SlotError(f"adata.obsm has no {keys.samples!r}: run dice.tl.denoise with n_samples=200 first.")
    samples = np.asarray(adata.obsm[keys.samples][rows], dtype=np.float32)
    if samples.ndim != 3 or samples.shape[1] == 0 or not np.isfinite(samples).all():
        raise InputError(
            f"adata.obsm[{keys.samples!r}] does not hold finite samples of shape (cells, samples, "
            "latents): run dice.tl.denoise with n_samples=200 again."
        )
    return samples


def _ground(ax: Axes, onto: Map, colors: Colors | None, label: str) -> None:
    if colors is None:
        scatter_reference(ax, onto.coordinates, label=label)
    else:
        scatter_colored(ax, onto.coordinates, colors, alpha=0.25)


def _cloud(
    ax: Axes,
    onto: Map,
    cloud: Coordinates,
    start: Coordinates,
    *,
    level: float,
    size: float | None,
    color: str,
) -> None:
    """Samples, their contour and the observation of one cell.

    Each cell is placed by itself, so that its picture does not depend on which others were chosen.
    """
    where = onto.place(cloud)
    area = float(np.clip(2_000 / len(where), 3, 15)) if size is None else size
    scatter(ax, where, label="samples", size=area, zorder=4, color=color, alpha=0.4)
    if len(where) >= MIN_SAMPLES:
        extent = float(np.ptp(onto.coordinates, axis=0).max())
        region = highest_density_region(where, level, min_width=0.01 * (extent or 1.0))
        lines = ax.contour(region.x, region.y, region.density, [region.threshold], colors="black", zorder=5)
        lines.set(label=f"{level:.0%} of samples", linewidth=1.0)
    at = onto.place(start[None])
    mark: dict[str, Any] = {"marker": "X", "s": 80, "color": "white", "edgecolor": "black"}
    ax.scatter(at[:, 0], at[:, 1], label="observed", zorder=6, **mark)


def _legend(colors: Colors | None, ground: str, level: float) -> list[Line2D]:
    from matplotlib.lines import Line2D

    mark: dict[str, Any] = {"marker": "X", "markersize": 8, "markeredgecolor": "black"}
    return [
        Line2D([], [], color="white", linestyle="", label="observed", **mark),
        *dots({"samples": _ink(colors)}),
        Line2D([], [], color="black", linewidth=1.0, label=f"{level:.0%} of samples"),
        *dots({ground: REFERENCE} if colors is None else colors.legend),
    ]
