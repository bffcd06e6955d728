"""Losses of the training of a prior."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from anndata import AnnData

from dice._data.colors import SAFE
from dice._docs import shared
from dice._errors import InputError
from dice._plot.figure import finish, panels
from dice._types import Floats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from dice._data.store import Prior

HELD_OUT, LOSS = SAFE[0], "#8C8C8C"


@shared
def training(
    reference: AnnData | Prior | str | os.PathLike[str],
    *,
    prior_key: str = "dice",
    title: str = "",
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw the training loss and the held-out loss by step, and mark the step whose weights were kept.

    The held-out loss is relative to the best linear denoiser: below 1, the network removes more noise than PCA. The
    training loss has another unit and its own axis. For a Gaussian mixture, the held-out log-likelihood is drawn by
    number of components instead.

    Parameters
    ----------
    {prior}
    {panel}
    {figure}

    Returns
    -------
    None, the figure with ``return_fig=True``, or the axes with ``show=False`` or `ax`. Writes nothing.

    Examples
    --------
    >>> import dice
    >>> reference, _ = dice.datasets.mismatch(n_reference=300)
    >>> dice.tl.train_prior(reference, n_latent=5, training=dice.Training(max_steps=50))
    >>> figure = dice.pl.training(reference, return_fig=True)
    >>> figure.axes[0].get_xlabel()
    'step'
    """
    from dice._data.store import summarize  # Loads torch.

    prior = summarize(reference, prior_key)
    mixture = "log_likelihood" in prior.history
    if not mixture and not len(prior.history.get("validation", ())):
        raise InputError(
            "The prior has no held-out losses: call dice.tl.train_prior with dice.Training(validation_fraction=0.1)."
        )
    figure, (panel,) = panels(1, ax=ax, size=(5.2, 3.8), square=False)
    if mixture:
        _draw_mixture(panel, prior.history)
    else:
        _draw_losses(panel, prior.history, keeps_last=prior.preset.startswith("paper"))
    panel.set_title(title, fontsize=11)
    return finish(figure, panel, show=show, save=save, return_fig=return_fig, owned=ax is None)


def _draw_losses(ax: Axes, history: Mapping[str, Floats], *, keeps_last: bool) -> None:
    """Draw both losses. The presets of the paper keep the last weights, other presets the best."""
    step, held_out = history["step"], history["validation"]
    kept = len(step) - 1 if keeps_last else int(np.nanargmin(held_out))
    marker = "o" if len(step) == 1 else ""
    right = ax.twinx()
    (loss,) = right.plot(step, history["loss"], color=LOSS, linewidth=1, marker=marker, label="training loss")
    (curve,) = ax.plot(step, held_out, color=HELD_OUT, marker=marker, label="held-out loss")
    linear = ax.axhline(1, color=HELD_OUT, linestyle=":", linewidth=1, label="linear denoiser")
    line = _mark(ax, step[kept], held_out[kept], f"kept: step {step[kept]:.0f}")
    # The held-out loss is drawn above the training loss.
    ax.set_zorder(right.get_zorder() + 1)
    ax.patch.set_visible(False)
    ax.set_xlabel("step")
    ax.set_ylabel("held-out loss / loss of linear denoiser", color=HELD_OUT)
    right.set_ylabel("training loss", color=LOSS)
    for side in (ax, right):
        side.spines["top"].set_visible(False)
    # Below the panel, because it would cover one of the curves.
    where: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16)}
    ax.legend(handles=[curve, loss, linear, line], ncols=2, frameon=False, fontsize=9, **where)


def _draw_mixture(ax: Axes, history: Mapping[str, Floats]) -> None:
    size, likelihood = history["n_components"], history["log_likelihood"]
    best = int(np.nanargmax(likelihood))
    ax.plot(size, likelihood, color=HELD_OUT, marker="o", label="held-out log-likelihood")
    _mark(ax, size[best], likelihood[best], f"kept: {size[best]:.0f} components")
    ax.set_xscale("log", base=2)
    ax.set_xticks(size, [f"{n:.0f}" for n in size])
    ax.minorticks_off()
    ax.set(xlabel="components", ylabel="held-out log-likelihood per cell")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9)


def _mark(ax: Axes, x: float, y: float, label: str) -> Any:
    ax.plot([x], [y], color="black", marker="o", markersize=6, linestyle="")
    return ax.axvline(x, color="black", linestyle="--", linewidth=1, label=label)
