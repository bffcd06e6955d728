"""Posterior samples of single cells, drawn over the reference."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._arguments import share
from dice._data import read
from dice._data.colors import REFERENCE, read_colors
from dice._data.graph import Map, reference_map
from dice._errors import InputError
from dice._keys import DenoiseKeys
from dice._plot import Axes, Drawn, draw, outermost, panels, plot
from dice._types import Codes, Floats

#: Colour of samples over a grey reference, and over a coloured reference.
MOST_SAMPLES, SAMPLES_ON_COLORS = "#D55E00", "#1A1A1A"
#: Minimum number of samples for a contour, and points of its grid along each axis.
MIN_SAMPLES, N_GRID = 10, 100
#: Style of the marker at the projection of a cell.
CROSS: dict[str, Any] = {"marker": "X", "color": "white"}


@plot
def posterior(
    adata: AnnData,
    cells: str | int | Sequence[str] | Sequence[int],
    *,
    reference: AnnData | None = None,
    level: float = 0.9,
    color: str | None = None,
    use_rep: str = "X_dice",
    reference_rep: str = "X_dice_pca",
) -> Drawn:
    """Draw posterior samples of chosen cells over the map of the reference.

    Each cell has a panel. If all samples are in one cluster, the place of the cell is certain. If the samples are in
    several clusters, the cell may belong to any of these. Areas on a UMAP have no meaning. Nothing is written.

    Parameters
    ----------
    adata
        Query with samples, after ``dice.tl.denoise(adata, reference, n_samples=200)``.
    cells
        Name or position of a cell, or several of them.
    reference
        The reference of the query. None draws the denoised cells of the query instead.
    level
        Share of the samples inside the contour. A contour needs at least 10 samples.
    color
        Column of ``reference.obs`` to colour the reference by, in the colours of ``uns[f"{color}_colors"]`` if they
        exist. None draws the reference in grey.
    use_rep
        Key of the denoised embedding in ``obsm``. The keys of samples and projection are derived from this key.
    reference_rep
        Key of ``reference.obsm`` that the map is computed from.
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
    >>> cells.obsm["U_pca"] = cells.obsm["U"] = cells.obsm["U_true"]
    >>> cells.obsm["U_samples"] = cells.obsm["U_true"][:, None].repeat(50, axis=1)
    >>> figure = dice.pl.posterior(cells, 0, use_rep="U", return_fig=True)
    """
    level = share("level", level)
    keys, rows = DenoiseKeys(use_rep), _positions(adata, cells)
    samples = _samples(adata, keys, rows)
    observed = read.embedding(adata, keys.projection)[rows]
    ground = "all cells" if reference is None else "reference"
    source, source_rep, name = (adata, use_rep, "adata") if reference is None else (reference, reference_rep, ground)
    colors = None if color is None else read_colors(source, color)
    onto = reference_map(source, source_rep, name=name)
    onto.check_same_space(samples.shape[2], f"adata.obsm[{keys.samples!r}]")

    ink = MOST_SAMPLES if colors is None else SAMPLES_ON_COLORS
    named = draw.named_on_map(colors)
    side = draw.side(len(named))
    figure, axes = panels(len(rows), widths=side, height=side, same_limits=True)
    for panel, title, cloud, start in zip(axes, adata.obs_names[rows], samples, observed, strict=True):
        if colors is None:
            draw.scatter_reference(panel, onto.coordinates, label=ground)
        else:
            draw.scatter_colored(panel, onto.coordinates, colors, alpha=0.25)
        # Place each cell separately, so that its panel does not depend on the other cells.
        _draw_cell(panel, onto, onto.place(cloud), onto.place(start[None]), level, ink)
        draw.style_map(panel, title=title, n_cells=onto.n_cells)
    for panel in axes:
        # The names are below the samples.
        draw.name_groups(panel, named, onto.coordinates, zorder=3.4)
    others = {ground: REFERENCE} if colors is None else draw.legend_of(colors)
    entries = [
        *draw.dots({"observed": CROSS["color"]}, marker=CROSS["marker"], markersize=8, markeredgecolor="black"),
        *draw.dots({"samples": ink}),
        *draw.dots({f"{level:.0%} of samples": "black"}, marker="", linestyle="-", linewidth=1.0),
        *draw.dots(others),
    ]
    draw.add_legend(outermost(axes), entries)
    return figure, axes


def _positions(adata: AnnData, cells: Any) -> Codes:
    """Return the rows of cells given by name or by position."""
    wanted, rows = np.atleast_1d(np.asarray(cells)), pd.Series(np.arange(adata.n_obs), adata.obs_names)
    try:
        found = rows.iloc[wanted] if wanted.dtype.kind in "iu" else rows.loc[wanted]
    except (KeyError, IndexError):
        found = rows[:0]
    if found.empty:
        raise InputError(f"`cells` must be names, or positions below {adata.n_obs}, got {wanted[:5].tolist()}.")
    return found.to_numpy()


def _samples(adata: AnnData, keys: DenoiseKeys, rows: Codes) -> Floats:
    """Return the samples (cells, samples, latents) of the chosen cells."""
    step = "dice.tl.denoise with n_samples=200"
    samples = read.array(adata, keys.samples, step=step, rows=rows).astype(np.float32)
    if samples.ndim != 3 or samples.shape[1] == 0 or not np.isfinite(samples).all():
        raise InputError(f"adata.obsm[{keys.samples!r}] must hold finite samples: run {step} again.")
    return samples


def _draw_cell(ax: Axes, onto: Map, where: Floats, start: Floats, level: float, color: str) -> None:
    """Draw the samples of one cell, their contour and its projection."""
    # The marker is below the samples. If the cell is certain, the marker would hide all of them.
    ax.scatter(start[:, 0], start[:, 1], s=80, edgecolor="black", label="observed", zorder=3.5, **CROSS)
    area = float(np.clip(2_000 / len(where), 3, 15))
    draw.scatter(ax, where, label="samples", size=area, zorder=4, color=color, alpha=0.4)
    if len(where) >= MIN_SAMPLES:
        extent = float(np.ptp(onto.coordinates, axis=0).max()) or 1.0
        *density, threshold = highest_density_region(where, level, min_width=0.01 * extent)
        lines = ax.contour(*density, [threshold], colors="black", linestyles="solid", zorder=5)
        lines.set(label=f"{level:.0%} of samples", linewidth=1.0)


def highest_density_region(points: Floats, level: float, *, min_width: float) -> tuple[Floats, Floats, Floats, float]:
    """Return x, y and log-density on a grid, and the threshold of the smallest region with a share `level` of points.

    This is the highest density region of Hyndman (1996). The kernel is as wide as a typical neighbourhood of sqrt(n)
    points, but at least `min_width`. Distant modes then stay apart. A width from the overall spread would join them.
    """
    from sklearn.neighbors import KernelDensity, NearestNeighbors

    sample = points.astype(np.float64)
    rank = min(int(np.ceil(np.sqrt(len(sample)))), len(sample) - 1)
    distances, _ = NearestNeighbors(n_neighbors=rank).fit(sample).kneighbors()
    width = max(float(np.median(distances[:, -1])), min_width)
    kernel = KernelDensity(bandwidth=width).fit(sample)
    x, y = np.linspace(sample.min(0) - 4 * width, sample.max(0) + 4 * width, N_GRID).T
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    threshold = float(np.quantile(kernel.score_samples(sample), 1 - level))
    return x, y, kernel.score_samples(grid).reshape(N_GRID, N_GRID), threshold
