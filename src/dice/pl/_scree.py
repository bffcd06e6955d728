"""The spectrum of the reference and the number of latents taken from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dice._docs import shared
from dice._errors import InputError
from dice._plot.colors import SAFE
from dice._plot.figure import finish, panels
from dice._plot.prior import summarize

if TYPE_CHECKING:
    import os

    from anndata import AnnData
    from matplotlib.axes import Axes

    from dice._core.prior.prior import Prior

REST = "#B8B8B8"


@shared
def scree(
    adata_or_prior: AnnData | Prior | str | os.PathLike[str],
    *,
    key: str = "dice",
    n_values: int = 100,
    log: bool = False,
    title: str = "",
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw the singular values of the reference, with the number of latents that were kept.

    Parameters
    ----------
    adata_or_prior
        The reference after :func:`dice.tl.train_prior`, a prior, or the path of a file with either.
    key
        Key of the prior in ``uns``.
    n_values
        Leading singular values to draw, by default those that are examined for an elbow; never
        fewer than were kept.
    log
        Logarithmic axis of the values.
    title
        Title of the panel.
    ax
        Axes to draw into.
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
    prior = summarize(adata_or_prior, key)
    k = prior.n_latent
    values = prior.singular_values[: max(n_values, k + 1)]
    if not len(values):
        raise InputError("The prior holds no singular values: run dice.tl.train_prior again.")
    position = np.arange(1, len(values) + 1)
    figure, (panel,) = panels(1, ax=ax, size=(5.2, 3.4), square=False)
    look: dict[str, Any] = {"linewidths": 0, "s": 18, "zorder": 3}
    panel.plot(position, values, color=REST, linewidth=1)
    panel.scatter(position[:k], values[:k], color=SAFE[0], label=f"kept: {k} latents", **look)
    panel.scatter(position[k:], values[k:], color=REST, label="left as noise", **look)
    panel.axvline(k + 0.5, color="black", linestyle="--", linewidth=1)
    panel.set_xlabel("component")
    panel.set_ylabel("singular value")
    panel.set_title(title, fontsize=11)
    if log:
        panel.set_yscale("log")
    else:
        panel.set_ylim(bottom=0)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=9)
    return finish(figure, panel, show=show, save=save, return_fig=return_fig, owned=ax is None)
