"""The tuning curve of rho, and maps of the cells for several values of rho."""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from anndata import AnnData

from dice import settings
from dice._arguments import whole_number
from dice._data import read
from dice._data.colors import SAFE, read_colors
from dice._data.graph import Map
from dice._errors import DiceWarning, InputError
from dice._keys import DenoiseKeys, PriorKeys
from dice._model.arrays import subsample
from dice._plot import Axes, Drawn, draw, panels, plot
from dice._types import Floats

if TYPE_CHECKING:
    from dice._data.store import Reference

#: Default values of rho in units of the prior's latent scale.
STEPS = (0.1, 0.5, 2.0)


@plot
def rho(
    adata: AnnData,
    reference: "Reference | None" = None,
    *,
    rhos: Sequence[float] | None = None,
    color: str | None = None,
    n_cells: int = 2_000,
    use_rep: str = "X_dice",
    key: str = "dice_rho",
    prior_key: str = "dice",
) -> Drawn:
    """Draw the tuning curve of rho, and the cells for several values of rho on one UMAP with the reference in grey.

    The curve is drawn only after :func:`dice.tl.tune_rho`. The maps need a prior. The UMAP is computed from the
    reference and the projected query together, so that cells unlike the reference have a place on it. As rho grows,
    cells move towards the reference.

    Parameters
    ----------
    adata
        Query. If it was denoised before, the same arguments are used again, except rho.
    reference
        AnnData object with a prior, a :class:`dice.Prior`, or the path of a prior. None uses the prior in `adata`.
        Reference cells are drawn only if `reference` is an AnnData object.
    rhos
        Values of rho in PCA units. None uses the best value of the curve and the ends of its grid or, without a curve,
        0.1, 0.5 and 2 times the latent scale of the prior.
    color
        Column of ``obs``, or a gene.
    n_cells
        Maximum number of query cells, and of reference cells, to draw. The cells are evenly spaced.
    use_rep
        Key of the denoised embedding.
    key
        Key of the result of :func:`dice.tl.tune_rho`.
    prior_key
        Key of the prior in ``uns``. The projection of the reference is ``reference.obsm[f"X_{prior_key}_pca"]``.
    show, save, return_fig
        As in scanpy: whether to show the figure, a file to save it to, and whether to return it. None shows the figure
        if the backend can show figures.

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
    from dice._data.store import find_prior

    n_cells, curve = whole_number("n_cells", n_cells), read.record(adata, key)
    maps, ground, colors = [], None, None
    if curve is None or reference is not None or prior_key in read.names(adata, "uns"):
        cells = adata[subsample(np.arange(adata.n_obs), n_cells)].to_memory()
        colors = None if color is None else read_colors(cells, color)
        prior = find_prior(adata if reference is None else reference, key=prior_key)
        (start, projected), *denoised = _denoise(cells, prior, rhos, curve, use_rep)
        known = projected[:0]
        if isinstance(reference, AnnData):
            known = subsample(read.embedding(reference, PriorKeys(prior_key).projection, name="reference"), n_cells)
        onto = Map(np.vstack([known, projected]))
        ground = onto.coordinates[: len(known)] if len(known) else None
        maps = [(start, onto.coordinates[len(known) :])]
        maps += [(title, onto.place(latents)) for title, latents in denoised]
    side = draw.side(len(draw.named_on_map(colors)))
    figure, axes = panels(len(maps) + (curve is not None), widths=side, height=side)
    if curve is not None:
        _draw_curve(axes[0], curve)
    if maps:
        first, *others = own = axes[-len(maps) :]
        for ax in others:
            ax.sharex(first)
            ax.sharey(first)
        draw.row(own, colors, maps, ground)
    return figure, axes


def _draw_curve(ax: Axes, curve: Mapping[str, Any]) -> None:
    """Draw the loss by rho with its standard error, and the best rho."""
    grid, loss, error = (np.asarray(curve[name], dtype=np.float64) for name in ("grid", "loss", "error"))
    ax.fill_between(grid, loss - error, loss + error, color=SAFE[0], alpha=0.2, linewidth=0)
    ax.plot(grid, loss, color=SAFE[0], marker="o", markersize=4)
    ax.axvline(float(curve["rho"]), **draw.MARK)
    ax.set(title=f"best: rho = {float(curve['rho']):.3g}", box_aspect=1)
    ax.set(xlabel="rho (PCA units)", ylabel=f"loss ({curve['criterion']})")


def _denoise(
    cells: AnnData, prior: Any, rhos: Sequence[float] | None, curve: Mapping[str, Any] | None, use_rep: str
) -> list[tuple[str, Floats]]:
    """Return titles and latents: the projection, and the posterior mean for each rho with the stored arguments."""
    from dice._query.query import one_reading
    from dice._query.samples import stored_call
    from dice.tl._denoise import denoise

    record = read.record(cells, use_rep)
    if rhos is None and curve is not None:
        rhos = sorted({*np.asarray(curve["grid"])[[1, -1]].tolist(), float(curve["rho"])})
    steps = [step * prior.latent_scale for step in STEPS] if rhos is None else [float(rho) for rho in rhos]
    if not steps:
        raise InputError("`rhos` is empty: pass one or more numbers, or None.")
    call: dict[str, Any] = {} if record is None else stored_call(record)
    keys, found = DenoiseKeys("X_dice_by_rho"), []
    # Otherwise each rho would repeat the warnings and messages of dice.tl.denoise.
    with settings.using(verbosity=0), warnings.catch_warnings(action="ignore", category=DiceWarning), one_reading():
        for step in steps:
            denoise(cells, prior, **call | {"rho": step, "key_added": keys.key})
            found.append((f"rho = {step:.3g}", read.array(cells, keys.mean)))
    return [("PCA projection", read.array(cells, keys.projection)), *found]
