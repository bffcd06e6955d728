"""Reliability of probabilities and coverage of prediction sets."""

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._data.colors import REFERENCE, SAFE, read_groups
from dice._data.read import Transferred
from dice._errors import InputError
from dice._plot import PANEL, Axes, Drawn, draw, panels, plot
from dice._types import Codes, Floats

#: Inches per label, and number of bins of the diagram.
_LABEL_HEIGHT, _N_BINS = 0.22, 10


@plot
def reliability(adata: AnnData, labels_key: str, *, truth_key: str | None = None, key: str | None = None) -> Drawn:
    """Draw how often labels are correct at each probability, and how often sets contain the true label.

    The left panel is a reliability diagram. Cells are binned by the probability of their label. On the diagonal, labels
    with a probability of 70 % are correct for 70 % of the cells. The reliability error is the distance from the
    diagonal, averaged over cells. The right panel shows the coverage of the prediction sets, for all cells and for each
    true label, with the mean size of the sets in brackets. The line is the promised coverage. Bars are 95 % Wilson
    intervals. Cells with a true label that the reference lacks are left out.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.transfer_labels`, with known labels.
    labels_key
        Column of the reference whose labels were transferred.
    truth_key
        Column of ``adata.obs`` with the true labels. None uses `labels_key`.
    key
        Key of the transferred labels. None uses ``f"{labels_key}_dice"``.
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
    >>> simple = dice.Classifier(representation="projection")
    >>> dice.tl.transfer_labels(query, reference, "cell_type", classifier=simple)
    >>> figure = dice.pl.reliability(query, "cell_type", return_fig=True)
    >>> len(figure.axes) >= 2
    True
    """
    found = Transferred.of(adata, labels_key, key)
    colors = read_groups(adata, labels_key if truth_key is None else truth_key, argument="truth_key")
    # Positions of the true labels among those of the reference; -1 for other labels and missing ones.
    truth = np.append(pd.Index(found.names).get_indexer(colors.names), -1)[colors.codes]
    known = truth >= 0
    if not known.any():
        raise InputError(f"adata.obs[{colors.name!r}] has none of the labels {found.names[:5]}: set truth_key.")
    truth, sets = truth[known], found.sets[known]
    covered, size = sets[np.arange(len(truth)), truth], sets.sum(1)
    cells = {"all cells": np.ones(len(truth), dtype=bool)}
    cells |= {found.names[code]: truth == code for code in np.unique(truth)}
    rows = pd.DataFrame({name: (covered[own].mean(), size[own].mean(), own.sum()) for name, own in cells.items()})
    figure, axes = panels(2, height=max(PANEL, _LABEL_HEIGHT * len(cells)), square=False)
    _diagram(axes[0], found.probabilities[known], truth)
    _coverage(axes[1], rows.T.set_axis(["covered", "size", "n"], axis=1), 1 - found.alpha)
    left_out = int((~known & ~colors.missing).sum())
    note = f", {left_out:,} with labels unknown to the reference left out" if left_out else ""
    figure.suptitle(f"{len(truth):,} cells{note}", fontsize=9)
    return figure, axes


def _wilson(shares: pd.Series, n: pd.Series) -> Floats:
    """Return the lower and upper ends (2, n) of 95 % Wilson intervals, which are valid even for few cells."""
    from scipy.stats import binomtest

    counts = zip((shares * n).round().astype(int), n.astype(int), strict=True)
    return np.array([binomtest(right, of).proportion_ci(method="wilson") for right, of in counts]).T


def _diagram(ax: Axes, probabilities: Floats, truth: Codes) -> None:
    """Draw the share of correct labels at each probability, and the number of cells as bars."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == truth
    bins = np.minimum((confidence * _N_BINS).astype(int), _N_BINS - 1)
    table = pd.DataFrame({"said": confidence, "seen": right, "n": 1}).groupby(bins)
    said, seen, n = table["said"].mean(), table["seen"].mean(), table["n"].sum()
    ax.plot([0, 1], [0, 1], color="black", linestyle=":", linewidth=1)
    ax.bar((n.index + 0.5) / _N_BINS, 0.25 * n / n.max(), width=0.9 / _N_BINS, color=REFERENCE, label="cells")
    ax.vlines(said, *_wilson(seen, n), color=SAFE[0], linewidth=1.2)
    ax.plot(said, seen, color=SAFE[0], marker="o", markersize=5, linewidth=1.2, label="share that is right")
    ax.set(xlim=(0, 1), ylim=(0, 1.02))
    title = f"accuracy {right.mean():.1%}, reliability error {np.average(np.abs(said - seen), weights=n):.3f}"
    ax.set(title=title, xlabel="probability of the label", ylabel="share that is right")
    ax.legend()


def _coverage(ax: Axes, rows: pd.DataFrame, promised: float) -> None:
    """Draw the share of sets that contain the true label, for all cells and for each label."""
    y = draw.name_rows(ax, [f"{name} ({size:.1f})" for name, size in rows["size"].items()])
    low, high = _wilson(rows["covered"], rows["n"])
    ax.axvline(promised, **draw.MARK, label=f"promised: {promised:.0%}")
    ax.hlines(y, low, high, color=SAFE[0], linewidth=1.2)
    ax.scatter(rows["covered"], y, s=[50] + [25] * (len(rows) - 1), color=SAFE[0], zorder=3, label="coverage")
    ax.set(title="coverage (mean size of the sets)", xlabel="share of sets with the true label")
    ax.set_xlim(min(0.5, float(low.min()) - 0.02), 1.01)
    draw.add_legend(ax)
