"""Quality of predicted features."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from anndata import AnnData

from dice._data.colors import MISSING, SAFE
from dice._data.features import PredictedTable, has_features, title_of
from dice._model.arrays import correlations, subsample
from dice._plot import Axes, Drawn, draw, panels, plot
from dice._types import Floats

#: Maximum number of features to name, and maximum number of cells in a scatter plot.
N_NAMED, MOST_DRAWN = 5, 1000
#: Number of scatter plots by default.
N_DRAWN = 3


@plot
def features(
    adata: AnnData,
    features_key: str | Sequence[str],
    *,
    names: str | Sequence[str] | None = None,
    truth_key: str | Sequence[str] | None = None,
    key: str | None = None,
) -> Drawn:
    """Draw the quality of predicted features.

    The first panel ranks features by their correlation in held-out reference cells; useless features are grey. If
    `adata` has measured features, the panel also shows their correlation with the predictions, and there are further
    panels. The second panel shows the share of cells whose interval contains the measured value, for each feature. The
    other panels show measured against predicted values of some features, with intervals as lines.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.transfer_features`.
    features_key
        Features of the reference that were transferred, as in :func:`dice.tl.transfer_features`.
    names
        Features to draw in the other panels. None draws the three features with the best predictions.
    truth_key
        Measured features of `adata`, given like `features_key`. None uses `features_key` if `adata` has it.
    key
        Key of the predicted features. None uses the default of :func:`dice.tl.transfer_features`.
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
    >>> for cells in (reference, query):
    ...     cells.obsm["protein"] = cells.obsm["U_true"][:, :2]
    >>> dice.tl.transfer_features(query, reference, "protein")
    >>> figure = dice.pl.features(query, "protein", return_fig=True)
    >>> len(figure.axes)
    4
    """
    if truth_key is None and has_features(adata, features_key):
        truth_key = features_key
    found = PredictedTable.of(adata, f"{title_of(features_key)}_dice" if key is None else key, truth_key)
    truth = found.truth
    drawn = [] if truth is None else found.chosen(names, N_DRAWN)
    figure, axes = panels(1 if truth is None else 2 + len(drawn), square=False)
    _ranked(axes[0], found)
    if truth is not None:
        _coverage(axes[1], found, truth)
        for ax, feature in zip(axes[2:], drawn, strict=True):
            _cells(ax, found, truth, feature)
    return figure, axes


def _ranked(ax: Axes, found: PredictedTable) -> None:
    """Draw correlations in held-out reference cells and in the query."""
    order, places = found.ranked, np.arange(len(found.names))
    useless = found.useless[order]
    if found.truth is not None:
        own = correlations(found.mean, found.truth)[order]
        ax.scatter(places, own, s=10, marker="x", linewidths=0.8, color=SAFE[1], label="in these cells", zorder=2)
    for which, color, label in ((~useless, SAFE[0], "held-out reference"), (useless, MISSING, "useless")):
        values = found.correlation[order][which]
        ax.scatter(places[which], values, s=14, color=color, linewidths=0, label=label, zorder=3)
    best = [found.names[i] for i in order[:N_NAMED]]
    look: dict[str, Any] = {"fontsize": 8, "ha": "right", "va": "top", "transform": ax.transAxes}
    ax.text(0.99, 0.99, "\n".join(["best predicted:", *best]), **look)
    ax.axhline(0, color="black", linewidth=0.6)
    title = f"{(~useless).sum()} of {len(useless)} features can be used"
    ax.set(title=title, xlabel="features, ranked", ylabel="correlation")
    ax.legend(loc="lower left")


def _coverage(ax: Axes, found: PredictedTable, truth: Floats) -> None:
    """Draw the share of cells whose interval contains the measured value, for all features in ranked order."""
    order, promised = found.ranked, 1 - found.alpha
    known = ~np.isnan(truth)
    held = (found.low <= truth) & (truth <= found.high)
    share = np.where(known.any(0), held.sum(0) / np.maximum(known.sum(0), 1), np.nan)[order]
    ax.axhline(promised, **draw.MARK, label=f"promised: {promised:.0%}")
    inks = np.where(found.useless[order], MISSING, SAFE[0])
    ax.scatter(np.arange(len(order)), share, s=14, c=inks, linewidths=0, zorder=3)
    ax.set_ylim(min(0.5, float(np.min(share[np.isfinite(share)], initial=0.5)) - 0.02), 1.01)
    title = f"intervals cover {np.nanmean(share) if known.any() else np.nan:.1%} on average"
    ax.set(title=title, xlabel="features, ranked", ylabel="share of intervals with the value")
    ax.legend(loc="lower left")


def _cells(ax: Axes, found: PredictedTable, truth: Floats, feature: int) -> None:
    """Draw measured against predicted values, with the intervals."""
    some = subsample(np.flatnonzero(~np.isnan(truth[:, feature])), MOST_DRAWN)
    mean, measured, low, high = (part[some, feature] for part in (found.mean, truth, found.low, found.high))
    inside, where = (low <= measured) & (measured <= high), np.stack([mean, measured], axis=1)
    ax.vlines(mean, low, high, color=MISSING, linewidth=0.5, alpha=0.35, rasterized=True, label="interval")
    for which, color, label in ((inside, SAFE[0], "inside"), (~inside, SAFE[5], "outside")):
        draw.scatter(ax, where[which], label=label, size=draw.point_size(len(some)), zorder=3, color=color)
    correlation = correlations(found.mean[:, [feature]], truth[:, [feature]])[0]
    title = f"{found.names[feature]}: correlation {correlation:.2f}{', useless' if found.useless[feature] else ''}"
    ax.set(title=title, xlabel="predicted", ylabel="measured")
    ax.legend(loc="upper left")
