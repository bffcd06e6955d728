"""What rho does: the tuning curve, and cells on their way from what was measured to what the prior knows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._docs import shared
from dice._errors import DiceWarning, InputError
from dice._plot.colors import SAFE, read_colors
from dice._plot.figure import finish, panels
from dice._plot.layout import Map, read_embedding
from dice._plot.panels import plain
from dice.pl._comparison import draw_row, row_margin

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from anndata import AnnData
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from dice._core.prior.prior import Prior
    from dice._plot.colors import Palette
    from dice._plot.layout import Coordinates

    Curve = dict[str, Any]

#: By default, rho in units of the prior's latent scale, of which half is the usual default of tl.denoise.
STEPS = (0.1, 0.5, 2.0)


@shared
def rho(
    adata: AnnData,
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    *,
    rhos: Sequence[float] | None = None,
    color: str | None = None,
    reference_rep: str = "X_dice_pca",
    n_cells: int = 2_000,
    key: str = "X_dice",
    curve_key: str = "dice_rho",
    n_neighbors: int = 15,
    random_state: int = 0,
    size: float | None = None,
    palette: Palette | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw the tuning curve of rho, and the cells for growing rho on one map with the reference in grey.

    The curve is that of :func:`dice.tl.tune_rho`, if it was called; without a prior it is drawn alone. The map
    is fitted on the reference and the projected query together, so that also cells unlike the reference
    have their place on it; as rho grows, cells move from there towards the reference.

    Parameters
    ----------
    adata
        Query. If it was denoised, its arguments other than rho are used again.
    reference
        AnnData object with a prior, a :class:`dice.Prior`, or the path of a file with one; None takes the
        prior inside `adata` itself. Only an AnnData object is drawn.
    rhos
        Values in PCA units; None takes the best one of the curve and the ends of its grid, or without a
        curve 0.1, 0.5 and 2 times the prior's latent scale.
    color
        Column of ``obs``, or a gene.
    reference_rep
        Key of ``reference.obsm`` with the projection of the reference.
    n_cells
        At most so many cells of the query, and of the reference, chosen at random.
    key
        Key that `adata` was denoised to.
    curve_key
        Key of the curve in ``uns``.
    {umap}
    {palette}
    {figure}

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Writes nothing.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    >>> figure = dice.pl.rho(query, reference, rhos=[1, 30], n_cells=100, return_fig=True)
    >>> [ax.get_title() for ax in figure.axes]
    ['PCA projection', 'rho = 1', 'rho = 30']
    """
    curve = _read_curve(adata, curve_key)
    maps, ground, colors = [], None, None
    if curve is None or reference is not None or "dice" in adata.uns:
        cells = adata[_choose(adata.n_obs, n_cells, random_state)].to_memory()
        colors = None if color is None else read_colors(cells, color, palette)
        steps, (projected, *denoised) = _denoise(cells, adata if reference is None else reference, rhos, curve, key)
        known = projected[:0]
        if hasattr(reference, "obsm"):
            known = read_embedding(reference, reference_rep, name="reference")
            known = known[_choose(len(known), n_cells, random_state)]
        onto = Map(np.vstack([known, projected]), n_neighbors, random_state, placeable=True)
        ground = onto.coordinates[: len(known)] if len(known) else None
        maps = [("PCA projection", onto.coordinates[len(known) :])]
        maps += [(f"rho = {step:.3g}", onto.place(latents)) for step, latents in zip(steps, denoised, strict=True)]
    n_panels, margin = len(maps) + (curve is not None), row_margin(colors, ground) if maps else 0.0
    figure, axes = panels(n_panels, ncols=n_panels, margin=margin, square=False)
    if curve is not None:
        _draw_curve(axes[0], curve)
    if maps:
        draw_row(axes[-len(maps) :], colors, maps, ground, size)
        _same_limits(axes[-len(maps) :])
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _read_curve(adata: AnnData, key: str) -> Curve | None:
    """The curve that ``tl.tune_rho`` left, if it was called."""
    if key not in adata.uns:
        return None
    return {name: np.asarray(adata.uns[key][name], dtype=np.float64) for name in ("grid", "loss", "error", "rho")} | {
        "criterion": adata.uns[key]["criterion"]
    }


def _draw_curve(ax: Axes, curve: Curve) -> None:
    """Loss by rho with its standard error, and the best rho."""
    grid, loss, error = curve["grid"], curve["loss"], curve["error"]
    ax.fill_between(grid, loss - error, loss + error, color=SAFE[0], alpha=0.2, linewidth=0)
    ax.plot(grid, loss, color=SAFE[0], marker="o", markersize=4)
    best = float(curve["rho"])
    ax.axvline(best, color="black", linestyle="--", linewidth=1)
    ax.set_title(f"best: rho = {best:.3g}", fontsize=11)
    ax.set_xlabel("rho (PCA units)", fontsize=9)
    ax.set_ylabel(f"loss ({curve['criterion']})", fontsize=9)
    ax.set_box_aspect(1)
    plain(ax)


def _same_limits(axes: list[Axes]) -> None:
    x, y = (np.array([getattr(ax, f"get_{axis}lim")() for ax in axes]) for axis in "xy")
    for ax in axes:
        ax.set(xlim=(x[:, 0].min(), x[:, 1].max()), ylim=(y[:, 0].min(), y[:, 1].max()))


def _choose(n: int, n_cells: int, random_state: int) -> NDArray[np.intp]:
    """Positions of at most `n_cells` cells, in their order."""
    if n_cells < 1:
        raise InputError(f"n_cells={n_cells} leaves nothing to draw: pass 1 or more.")
    return np.sort(np.random.default_rng(random_state).permutation(n)[:n_cells])


def _denoise(
    cells: AnnData,
    source: AnnData | Prior | str | os.PathLike[str],
    rhos: Sequence[float] | None,
    curve: Curve | None,
    key: str,
) -> tuple[list[float], list[Coordinates]]:
    """Values of rho; the projection and the posterior mean for each, otherwise as `cells` were denoised before."""
    from dice._anndata.store import find_prior
    from dice._query.options import stored_call
    from dice.tl._denoise import denoise

    prior = find_prior(source)
    if rhos is not None:
        steps = [float(rho) for rho in rhos]
    elif curve is not None:
        steps = sorted({float(rho) for rho in (*curve["grid"][[1, -1]], curve["rho"])})
    else:
        steps = [step * prior.latent_scale for step in STEPS]
    if not steps:
        raise InputError("rhos is empty: pass one or more numbers, or None.")
    call = stored_call(cells.uns[key]) if key in cells.uns else {}
    found: list[Coordinates] = []
    with warnings.catch_warnings():
        # One per rho would say the same again; denoising itself has said it, or will.
        warnings.simplefilter("ignore", DiceWarning)
        for step in steps:
            denoise(cells, prior, **call | {"rho": step, "key_added": "rho", "uncertainty": False})
            found = [*(found or [cells.obsm["rho_pca"]]), cells.obsm["rho"]]
    return steps, found
