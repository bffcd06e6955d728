"""How well posterior samples support a clustering."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._anndata.store import Prior
from dice._anndata.write import Slots, check_writable, write
from dice._arguments import known_key, whole_number
from dice._errors import InputError
from dice._query.arguments import result_key
from dice._scanpy.graph import leiden
from dice.tl._neighbors import posterior_samples

#: A cluster whose cells stay together less often than this is not supported.
SUPPORTED = 0.5


def cluster_stability(
    adata: AnnData,
    groups: str,
    *,
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    n_samples: int = 10,
    resolution: float = 1.0,
    n_neighbors: int = 15,
    key: str = "X_dice",
    key_added: str = "dice_stability",
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """How often posterior samples keep a cell together with its group.

    Each posterior sample is clustered by Leiden on its own. The stability of a cell is the share of its group's other
    cells that it is clustered with, averaged over the samples; that of a group is the mean over its cells. Groups
    that the samples do not hold together are named in a warning.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.denoise`.
    groups
        Column of ``adata.obs`` with the clustering or the labels to examine.
    reference
        Where the prior is, for drawing samples; None takes the prior inside `adata`.
    n_samples
        Posterior samples to cluster; stored ones are used where there are enough.
    resolution
        Resolution of the clusterings; it should be the one that gave `groups`.
    n_neighbors
        Neighbours in the graphs behind the clusterings.
    key
        Key of the denoised embedding.
    key_added
        Key of the results.
    random_state
        Seed of the clusterings.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obs["dice_stability"]`` float32
        Stability of every cell, from 0 to 1; NaN without a group or alone in it.
    ``adata.uns["dice_stability"]``
        ``groups`` (names), ``stability`` and ``n_cells`` of each, ``unsupported`` (names), and parameters.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    >>> dice.tl.denoise(query, reference, rho=60, n_samples=3)
    >>> dice.tl.cluster_stability(query, "cell_type", n_samples=3, resolution=0.1)
    >>> query.uns["dice_stability"]["groups"].tolist()
    ['Cluster 1', 'Cluster 2']
    """
    check_writable(adata, copy=copy)
    n_samples = whole_number("n_samples", n_samples)
    random_state = whole_number("random_state", random_state, least=0)
    key_added = result_key(adata, key_added, "dice_stability", besides=key)
    known_key(groups, adata.obs, "column", "adata.obs")
    labels = pd.Categorical(adata.obs[groups]).remove_unused_categories()
    if not len(labels.categories):
        raise InputError(f"adata.obs[{groups!r}] holds no group at all: pass a column with clusters or labels.")
    samples = posterior_samples(adata, reference, n_samples, key)
    codes = np.asarray(labels.codes)
    each = np.zeros(adata.n_obs)
    with _log.progress(total=n_samples, desc="Clustering samples", unit="sample") as bar:
        for index in range(n_samples):
            clusters = leiden(
                samples[:, index], resolution=resolution, n_neighbors=n_neighbors, random_state=random_state
            )
            each += shared_company(codes, np.asarray(pd.factorize(clusters)[0])) / n_samples
            bar.update()
    table = pd.Series(each).groupby(codes).mean().reindex(range(len(labels.categories)))
    names = np.asarray(labels.categories.astype(str), dtype=object)
    unsupported = names[(table < SUPPORTED).to_numpy()]
    if len(unsupported):
        _log.warn(f"Posterior samples do not hold these groups together: {list(unsupported[:10])}.")
    record = {
        "groups": names,
        "stability": table.to_numpy(dtype=np.float64),
        "n_cells": np.bincount(codes[codes >= 0], minlength=len(names)),
        "unsupported": unsupported,
        "params": {"groups": groups, "n_samples": n_samples, "resolution": resolution, "random_state": random_state},
    }
    return write(adata, Slots(obs={key_added: each.astype(np.float32)}, uns={key_added: record}), copy=copy)


def shared_company(groups: NDArray[np.integer], clusters: NDArray[np.integer]) -> NDArray[np.float64]:
    """Share of the other cells of its group that each cell is clustered with; NaN where there are none."""
    table = np.zeros((groups.max() + 1, clusters.max() + 1))
    inside = groups >= 0
    np.add.at(table, (groups[inside], clusters[inside]), 1)
    result = np.full(len(groups), np.nan)
    size = table.sum(1)[groups[inside]]
    together = table[groups[inside], clusters[inside]] - 1
    with np.errstate(invalid="ignore"):
        result[inside] = together / (size - 1)
    return result
