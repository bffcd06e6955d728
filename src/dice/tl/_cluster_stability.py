"""How well posterior samples support a clustering."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
from anndata import AnnData

from dice import _log
from dice._arguments import seed, whole_number
from dice._clusters.agreement import shared_company
from dice._data.checks import read_groups
from dice._data.graph import leiden
from dice._data.store import Prior
from dice._data.write import Slots, check_writable, result_key, write
from dice._query.samples import posterior_samples

#: A cluster whose cells stay together less often than this is not supported.
SUPPORTED = 0.5


@_log.once_per_object
def cluster_stability(
    adata: AnnData,
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    *,
    groupby: str,
    n_samples: int = 10,
    resolution: float = 1.0,
    n_neighbors: int = 15,
    use_rep: str = "X_dice",
    prior_key: str = "dice",
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
    reference
        As in :func:`dice.tl.neighbors`.
    groupby
        Column of ``adata.obs`` with the clustering or the labels to examine.
    n_samples
        Posterior samples to cluster; stored ones are used where there are enough.
    resolution
        Resolution of the clusterings; it should be the one that gave the groups.
    n_neighbors
        Neighbours in the graphs behind the clusterings.
    use_rep
        Key of the denoised embedding.
    prior_key
        Key of the prior in the reference.
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
    >>> dice.tl.cluster_stability(query, groupby="cell_type", n_samples=3, resolution=0.1)
    >>> query.uns["dice_stability"]["groups"].tolist()
    ['Cluster 1', 'Cluster 2']
    """
    check_writable(adata, copy=copy)
    n_samples = whole_number("n_samples", n_samples)
    random_state = seed(random_state)
    key_added = result_key(adata, key_added, "dice_stability", besides=use_rep)
    labels = read_groups(adata, groupby)
    samples = posterior_samples(adata, reference, n_samples, use_rep, prior_key)
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
        "params": {"groupby": groupby, "n_samples": n_samples, "resolution": resolution, "random_state": random_state},
    }
    return write(adata, Slots(obs={key_added: each.astype(np.float32)}, uns={key_added: record}), copy=copy)
