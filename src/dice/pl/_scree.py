"""Singular values of the reference and the number of latents."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from anndata import AnnData

from dice._data.colors import MISSING, SAFE
from dice._docs import shared
from dice._errors import InputError
from dice._plot.figure import finish, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dice._data.store import Prior


@shared
def scree(
    reference: AnnData | Prior | str | os.PathLike[str],
    *,
    prior_key: str = "dice",
    n_values: int = 100,
    log: bool = False,
    title: str = "",
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw the singular values of the reference, and mark the number of latents.

    Parameters
    ----------
    {prior}
    n_values
        Number of singular values to draw, at least those of the latents. The default is the number that is searched
        for an elbow.
    log
        Draw the values on a logarithmic axis.
    {panel}
    {figure}

    Returns
    -------
    None, the figure with ``return_fig=True``, or the axes with ``show=False`` or `ax`. Writes nothing.

    Examples
    --------
    >>> import dice
    >>> reference, _ = dice.datasets.mismatch(n_reference=300)
    >>> dice.tl.train_prior(reference, n_latent=5, preset="gmm")
    >>> figure = dice.pl.scree(reference, return_fig=True)
    >>> figure.axes[0].get_xlabel()
    'component'
    """
    from dice._data.store import summarize  # Loads torch.

    prior = summarize(reference, prior_key)
    k = prior.n_latent
    values = prior.singular_values[: max(n_values, k + 1)]
    if not len(values):
        raise InputError("The prior has no singular values: call dice.tl.train_prior again.")
    position = np.arange(1, len(values) + 1)
    figure, (panel,) = panels(1, ax=ax, size=(5.2, 3.4), square=False)
    look: dict[str, Any] = {"linewidths": 0, "s": 18, "zorder": 3}
    panel.plot(position, values, color=MISSING, linewidth=1)
    panel.scatter(position[:k], values[:k], color=SAFE[0], label=f"kept: {k} latents", **look)
    panel.scatter(position[k:], values[k:], color=MISSING, label="left as noise", **look)
    panel.axvline(k + 0.5, color="black", linestyle="--", linewidth=1)
    panel.set(xlabel="component", ylabel="singular value", **{"yscale": "log"} if log else {"ylim": (0, None)})
    panel.set_title(title, fontsize=11)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=9)
    return finish(figure, panel, show=show, save=save, return_fig=return_fig, owned=ax is None)
