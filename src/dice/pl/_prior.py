"""The singular values of a reference and the training of its prior."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dice._data.colors import MISSING, SAFE
from dice._errors import InputError
from dice._plot import Axes, Drawn, draw, panels, plot
from dice._types import Floats

if TYPE_CHECKING:
    from dice._data.store import Reference

#: Minimum number of singular values to draw. The elbow is searched among these values.
N_VALUES = 100


@plot
def prior(reference: "Reference", *, prior_key: str = "dice") -> Drawn:
    """Draw the singular values of the reference with the number of latents, and the losses of the training by step.

    The held-out loss is relative to the best linear denoiser: below 1, the network removes more noise than a linear
    filter. The training loss has another unit and its own axis. The dashed line marks the step whose weights were kept.
    For a Gaussian mixture, the held-out log-likelihood by number of components is drawn instead.

    Parameters
    ----------
    reference
        The reference after :func:`dice.tl.train_prior`, a prior, or the path of a file with either.
    prior_key
        Key of the prior in ``uns``.
    show, save, return_fig
        As in scanpy: whether to show the figure, a file to save it to, and whether to return it. None shows the figure
        if the backend can show figures.

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Writes nothing.

    Examples
    --------
    >>> import dice
    >>> reference, _ = dice.datasets.mismatch(n_reference=300)
    >>> dice.tl.train_prior(reference, n_latent=5, training=dice.Training(max_steps=50))
    >>> axes = dice.pl.prior(reference, show=False)
    >>> [ax.get_xlabel() for ax in axes]
    ['component', 'step']
    """
    from dice._data.store import find_prior  # not at the top: it imports torch

    found = find_prior(reference, key=prior_key)
    singular_values = found.projection.singular_values
    mixture = "log_likelihood" in found.history
    if not mixture and not len(found.history.get("validation", ())):
        raise InputError("The prior has no held-out losses: train it with dice.Training(validation_fraction=0.1).")
    figure, axes = panels(2, widths=[4.2] * 2, square=False)
    _spectrum(axes[0], singular_values[: max(N_VALUES, found.n_latent + 1)], found.n_latent)
    if mixture:
        _mixture(axes[1], found.history)
    else:
        _losses(axes[1], found.history, keeps_last=found.preset.startswith("paper"))
    return figure, axes


def _losses(ax: Axes, history: Mapping[str, Floats], *, keeps_last: bool) -> None:
    """Draw both losses. The presets of the paper keep the last weights, and other presets keep the best weights."""
    step, held_out = history["step"], history["validation"]
    kept = len(step) - 1 if keeps_last else int(np.nanargmin(held_out))
    right = ax.twinx()
    (loss,) = right.plot(step, history["loss"], color=MISSING, linewidth=1, marker=".", label="training loss")
    (curve,) = ax.plot(step, held_out, color=SAFE[0], marker=".", label="held-out loss")
    linear = ax.axhline(1, color=SAFE[0], linestyle=":", linewidth=1, label="linear denoiser")
    line = ax.axvline(step[kept], **draw.MARK, label=f"kept: step {step[kept]:.0f}")
    # Draw the held-out loss above the training loss.
    ax.set_zorder(right.get_zorder() + 1)
    ax.patch.set_visible(False)
    ax.set(xlabel="step", ylabel="held-out loss / loss of linear denoiser")
    right.set_ylabel("training loss", color="#777777")
    right.spines["right"].set_visible(True)
    ax.legend(handles=[curve, loss, linear, line])


def _mixture(ax: Axes, history: Mapping[str, Floats]) -> None:
    size, likelihood = history["n_components"], history["log_likelihood"]
    best = int(np.nanargmax(likelihood))
    ax.plot(size, likelihood, color=SAFE[0], marker="o", label="held-out log-likelihood")
    ax.axvline(size[best], **draw.MARK, label=f"kept: {size[best]:.0f} components")
    ax.set_xscale("log", base=2)
    ax.set_xticks(size, [f"{n:.0f}" for n in size])
    ax.minorticks_off()
    ax.set(xlabel="components", ylabel="held-out log-likelihood per cell")
    ax.legend()


def _spectrum(ax: Axes, values: Floats, k: int) -> None:
    """Draw the singular values, and mark the values of the latents."""
    position = np.arange(1, len(values) + 1)
    ax.plot(position, values, color=MISSING, marker="o", markersize=4, label="left as noise")
    ax.plot(position[:k], values[:k], color=SAFE[0], marker="o", markersize=4, linestyle="", label=f"kept: {k} latents")
    ax.axvline(k + 0.5, **draw.MARK)
    ax.set(ylim=(0, None), xlabel="component", ylabel="singular value")
    ax.legend(loc="upper right")
