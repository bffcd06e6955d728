"""Scores of clusters against labels, and clusterings at many resolutions."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from dice import _log
from dice._arguments import as_embedding, choice, is_number, seed
from dice._clusters.partition import PartitionMethod, communities
from dice._data.graph import neighbor_graph
from dice._errors import InputError
from dice._types import Codes, Floats, Seed


def as_codes(labels: Any, what: str = "labels") -> Codes:
    """Return codes that number the labels by first appearance. Missing labels are -1."""
    # Use an object array, because the codes of a Categorical also number categories that no cell has.
    values = np.asarray(labels, dtype=object)
    if values.ndim != 1:
        raise InputError(f"The {what} must be a column such as adata.obs['cell_type'], got shape {values.shape}.")
    return np.asarray(pd.factorize(values)[0], dtype=np.intp)


def labelled_cells(embedding: Any, labels: Any, *, what: str = "labels", min_labels: int = 1) -> tuple[Floats, Codes]:
    """Return embedding and label codes of the cells that have a label."""
    values, codes = as_embedding(embedding), as_codes(labels, what)
    check_lengths(len(codes), what, len(values), "cells in the embedding")
    known, found = codes >= 0, int(codes.max(initial=-1)) + 1
    if found < min_labels:
        raise InputError(f"This score needs {min_labels} or more {what}, got {found}: pass a column with more {what}.")
    if known.sum() < 2:
        raise InputError(f"This score needs two or more cells with {what}: pass more cells.")
    return values[known], codes[known]


def paired_codes(labels: Any, clusters: Any) -> tuple[Codes, Codes]:
    """Return the codes of labels and clusters over the cells that have both."""
    first, second = as_codes(labels), as_codes(clusters, "clusters")
    check_lengths(len(first), "labels", len(second), "clusters")
    known = (first >= 0) & (second >= 0)
    if not known.any():
        raise InputError("No cell has both a label and a cluster: pass columns with fewer missing values.")
    return first[known], second[known]


def check_lengths(n_first: int, first: str, n_second: int, second: str) -> None:
    """Raise an error if two inputs do not have one entry per cell."""
    if n_first != n_second:
        raise InputError(f"There are {n_first} {first} but {n_second} {second}: pass one entry per cell.")


def ari(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Adjusted Rand index between labels and clusters.

    Parameters
    ----------
    labels
        Known label of every cell; cells without a label are left out.
    clusters
        Cluster of every cell; cells without a cluster are left out.

    Returns
    -------
    1 for equal partitions, about 0 for random partitions, negative if partitions agree less than by chance.

    Examples
    --------
    >>> import dice
    >>> dice.metrics.ari(["B", "B", "T", "T"], [1, 1, 0, 0])
    1.0
    """
    return float(adjusted_rand_score(*paired_codes(labels, clusters)))


def nmi(labels: ArrayLike, clusters: ArrayLike, *, average: Literal["arithmetic", "max"] = "arithmetic") -> float:
    """Normalised mutual information between labels and clusters.

    Parameters
    ----------
    labels
        Known label of every cell; cells without a label are left out.
    clusters
        Cluster of every cell; cells without a cluster are left out.
    average
        Divisor of the mutual information: the ``"arithmetic"`` mean of the two entropies, as in the
        paper's formula (this equals the V-measure), or their ``"max"``, as in the paper's tables.

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
    choice("average", average, ("arithmetic", "max"))
    return float(normalized_mutual_info_score(*paired_codes(labels, clusters), average_method=average))


def v_measure(labels: ArrayLike, clusters: ArrayLike) -> float:
    """V-measure: harmonic mean of homogeneity and completeness of clusters. It equals :func:`dice.metrics.nmi`.

    Parameters
    ----------
    labels
        Known label of every cell; cells without a label are left out.
    clusters
        Cluster of every cell; cells without a cluster are left out.

    Returns
    -------
    The score, between 0 and 1.

    Examples
    --------
    >>> import dice
    >>> dice.metrics.v_measure(["B", "B", "T", "T"], [1, 1, 2, 2])
    1.0
    """
    return nmi(labels, clusters)


#: The paper's 39 resolutions: 0.01 to 0.20 by 0.01, then 0.2 to 2.0 by 0.1 (0.2 is in both).
PAPER_RESOLUTIONS: tuple[float, ...] = (*(step / 100 for step in range(1, 21)), *(step / 10 for step in range(2, 21)))


def leiden_sweep(
    embedding: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    resolutions: Sequence[float] = PAPER_RESOLUTIONS,
    n_neighbors: int = 15,
    method: PartitionMethod = "leiden",
    random_state: Seed = 0,
) -> pd.DataFrame:
    """Cluster cells at many resolutions on one neighbour graph, and compare the clusters with labels.

    Parameters
    ----------
    embedding
        Array of shape (cells, dimensions), or sparse connectivities of shape (cells, cells).
    labels
        Known label of every cell. All cells are clustered; cells without a label are not scored.
    resolutions
        Resolutions of the clusterings, by default :data:`PAPER_RESOLUTIONS`.
    n_neighbors
        Size of the neighbourhoods in the graph.
    method
        ``"leiden"``, or ``"louvain"`` as in the paper's own runs.
    random_state
        Seed, the same for each resolution.

    Returns
    -------
    One row per resolution with ``resolution`` and ``n_clusters``, and with labels also ``ari``,
    ``nmi``, ``nmi_max`` and ``v_measure``.

    Examples
    --------
    >>> import numpy as np, dice
    >>> cells = np.r_[np.linspace(0, 1, 30), np.linspace(9, 10, 30)][:, None]
    >>> sweep = dice.metrics.leiden_sweep(cells, ["a"] * 30 + ["b"] * 30, resolutions=[0.1])
    >>> float(sweep.ari[0])
    1.0
    """
    if np.ndim(resolutions) != 1 or not len(resolutions) or not all(is_number(one) and one > 0 for one in resolutions):
        raise InputError("Resolutions must be positive numbers, for example 1.0 or [0.5, 1.0].")
    choice("method", method, ("leiden", "louvain"))
    random_state = seed(random_state)
    graph = neighbor_graph(embedding, n_neighbors)
    if labels is not None:
        check_lengths(len(as_codes(labels)), "labels", graph.vcount(), "cells in the embedding")
    rows = {}
    with _log.progress(total=len(set(resolutions)), desc=f"Clustering by {method}", unit="resolution") as bar:
        for resolution in dict.fromkeys(resolutions):
            clusters = communities(graph, resolution, method=method, random_state=random_state)
            row = rows[resolution] = {"resolution": resolution, "n_clusters": len(np.unique(clusters))}
            if labels is not None:
                agreement = nmi(labels, clusters)
                row |= {"ari": ari(labels, clusters), "nmi": agreement}
                row |= {"nmi_max": nmi(labels, clusters, average="max"), "v_measure": agreement}
            bar.update()
    return pd.DataFrame([rows[resolution] for resolution in resolutions])
