"""Agreement between known labels and clusters or predictions."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, v_measure_score

from dice._errors import InputError
from dice.metrics._inputs import as_codes, check_lengths, paired_codes


def ari(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Adjusted Rand index between labels and clusters.

    Parameters
    ----------
    labels
        Known label of every cell; cells without one are left out.
    clusters
        Cluster of every cell; cells without one are left out.

    Returns
    -------
    1 for equal partitions, about 0 for chance, negative for less than chance.

    Examples
    --------
    >>> import dice
    >>> dice.metrics.ari(["B", "B", "T", "T"], [1, 1, 0, 0])
    1.0
    """
    return float(adjusted_rand_score(*paired_codes(labels, clusters, "clusters")))


def nmi(labels: ArrayLike, clusters: ArrayLike, *, average: Literal["arithmetic", "max"] = "arithmetic") -> float:
    """Normalised mutual information between labels and clusters.

    Parameters
    ----------
    labels
        Known label of every cell; cells without one are left out.
    clusters
        Cluster of every cell; cells without one are left out.
    average
        What the mutual information is divided by: the ``"arithmetic"`` mean of the two entropies
        (the formula that the paper prints, identical to the V-measure) or their ``"max"`` (what its
        tables hold).

    Returns
    -------
    A number from 0 (independent) to 1 (equal partitions).

    Examples
    --------
    >>> import dice
    >>> round(dice.metrics.nmi(["B", "B", "T", "T"], [0, 0, 1, 2]), 3)
    0.8
    >>> round(dice.metrics.nmi(["B", "B", "T", "T"], [0, 0, 1, 2], average="max"), 3)
    0.667
    """
    if average not in ("arithmetic", "max"):
        raise InputError(f"average={average!r} is unknown: use 'arithmetic' or 'max'.")
    pair = paired_codes(labels, clusters, "clusters")
    return float(normalized_mutual_info_score(*pair, average_method=average))


def v_measure(labels: ArrayLike, clusters: ArrayLike) -> float:
    """V-measure: harmonic mean of homogeneity and completeness of the clusters.

    Parameters
    ----------
    labels
        Known label of every cell; cells without one are left out.
    clusters
        Cluster of every cell; cells without one are left out.

    Returns
    -------
    A number from 0 to 1, always equal to :func:`nmi` with ``average="arithmetic"``.

    Examples
    --------
    >>> import dice
    >>> round(dice.metrics.v_measure(["B", "B", "T", "T"], [0, 0, 1, 2]), 3)
    0.8
    """
    return float(v_measure_score(*paired_codes(labels, clusters, "clusters")))


def label_accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Fraction of labelled cells whose predicted label is the known one.

    Parameters
    ----------
    labels
        Known label of every cell; cells without one are left out.
    predicted
        Predicted label of every cell; a missing prediction counts as wrong.

    Returns
    -------
    A number from 0 to 1.

    Examples
    --------
    >>> import dice
    >>> dice.metrics.label_accuracy(["B", "B", "T", None], ["B", "T", "T", "T"])
    0.6666666666666666
    """
    truth, guess = as_codes(labels), as_codes(predicted, "predicted labels")
    check_lengths(len(truth), "labels", len(guess), "predicted labels")
    known = truth >= 0
    if not known.any():
        raise InputError("No cell has a label: pass labels that are not all missing.")
    # Numbered together, so that equal numbers mean equal labels.
    both = as_codes([*np.asarray(labels, dtype=object), *np.asarray(predicted, dtype=object)])
    return float(np.mean((both[: len(truth)] == both[len(truth) :])[known]))
