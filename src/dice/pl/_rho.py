"""What rho does: cells on their way from what was measured to what the prior knows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._docs import shared
from dice._errors import DiceWarning, InputError
from dice.pl._colors import read_colors
from dice.pl._comparison import draw_panels
from dice.pl._figure import finish
from dice.pl._layout import Map, read_embedding

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from anndata import AnnData
    from numpy.typing import NDArray

    from dice._core.prior import Prior
    from dice.pl._colors import Palette
    from dice.pl._layout import Coordinates

#: By default, rho in units of the prior's latent scale, of which half is the default of tl.denoise.
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
    n_neighbors: int = 15,
    random_state: int = 0,
    size: float | None = None,
    palette: Palette | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw the projection and the denoised cells for growing rho on one map, over the reference in grey.

    The map is fitted on the reference and the projected query together, so that also cells unlike the
    reference have their place on it; as rho grows, cells move from there towards the reference.

    Parameters
    ----------
    adata
        Query. If it was denoised, its arguments other than rho are used again.
    reference
        AnnData object with a prior, a :class:`dice.Prior`, or the path of a file with one; None takes the
        prior inside `adata` itself. Only an AnnData object is drawn.
    rhos
        Values in PCA units; None takes 0.1, 0.5 and 2 times the prior's latent scale.
    color
        Column of ``obs``, or a gene.
    reference_rep
        Key of ``reference.obsm`` with the projection of the reference.
    n_cells
        At most so many cells of the query, and of the reference, chosen at random.
    key
        Key that `adata` was denoised to.
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
    from dice._anndata.store import find_prior

    prior = find_prior(adata if reference is None else reference)
    values = [step * prior.latent_scale for step in STEPS] if rhos is None else [float(value) for value in rhos]
    if not values:
        raise InputError("rhos is empty: pass one or more numbers, or None.")
    cells = adata[_choose(adata.n_obs, n_cells, random_state)].to_memory()
    colors = None if color is None else read_colors(cells, color, palette)
    projected, *denoised = _denoise(cells, prior, values, key)
    ground = projected[:0]
    if hasattr(reference, "obsm"):
        known = read_embedding(reference, reference_rep, name="reference")
        ground = known[_choose(len(known), n_cells, random_state)]
    onto = Map(np.vstack([ground, projected]), n_neighbors, random_state, placeable=True)
    maps = [onto.coordinates[len(ground) :], *(onto.place(embedding) for embedding in denoised)]
    titles = ["PCA projection", *(f"rho = {value:.3g}" for value in values)]
    behind = onto.coordinates[: len(ground)] if len(ground) else None
    figure, axes = draw_panels([colors], list(zip(titles, maps, strict=True)), behind, None, size, shared=True)
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _choose(n: int, n_cells: int, random_state: int) -> NDArray[np.intp]:
    """Positions of at most `n_cells` cells, in their order."""
    if n_cells < 1:
        raise InputError(f"n_cells={n_cells} leaves nothing to draw: pass 1 or more.")
    return np.sort(np.random.default_rng(random_state).permutation(n)[:n_cells])


def _denoise(cells: AnnData, prior: Prior, rhos: list[float], key: str) -> list[Coordinates]:
    """Projection, and posterior means for every rho, otherwise as `cells` were denoised before."""
    from dice.tl._denoise import denoise
    from dice.tl._options import stored_call

    call = stored_call(cells.uns[key]) if key in cells.uns else {}
    found: list[Coordinates] = []
    with warnings.catch_warnings():
        # One per rho would say the same again; denoising itself has said it, or will.
        warnings.simplefilter("ignore", DiceWarning)
        for value in rhos:
            denoise(cells, prior, **call | {"rho": value, "key_added": "rho", "uncertainty": False})
            found = [*(found or [cells.obsm["rho_pca"]]), cells.obsm["rho"]]
    return found
