"""Clusters that a second measurement would find again, with no resolution to choose."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
from anndata import AnnData

from dice import _log
from dice._arguments import seed, share, short_seed, whole_number
from dice._clusters.stable import find_clusters
from dice._data.colors import distinct
from dice._data.graph import graph_slots
from dice._data.read import names
from dice._data.store import Prior, find_prior
from dice._data.write import Slots, check_writable, result_key, write
from dice._errors import SlotError
from dice._keys import ClusterKeys, DenoiseKeys
from dice._query.query import Query
from dice._query.samples import denoised_query
from dice.options import Options


@_log.once_per_object
def cluster(
    adata: AnnData,
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    *,
    n_neighbors: int = 15,
    n_splits: int = 4,
    min_agreement: float = 0.8,
    use_rep: str = "X_dice",
    prior_key: str = "dice",
    key_added: str = "dice_cluster",
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Find the finest clusters that two measurements of the same cells would agree on.

    The counts of every cell are split into two halves at random and denoised, each on its own: two independent
    measurements of it. How far they differ tells how far two measurements with all of the counts would. Such second
    measurements are clustered (Leiden) at every resolution, and the finest one at which they agree is taken. Every pair
    of clusters that the halves themselves do not tell apart is then joined, and so are clusters that depth alone sets
    apart. What it clusters in the end is the mean of the neighbour graphs of the whole cells and of all halves. Where
    second measurements agree on nothing, so that the cells have no structure, all are one cluster.

    Parameters
    ----------
    adata
        A query after :func:`dice.tl.denoise`, or a data set that holds its own prior. Cells that were not denoised yet
        are, with the defaults, and what :func:`dice.tl.denoise` writes is written as well.
    reference
        Where the prior is; None takes the one that made the embedding where it is in memory, or the one inside `adata`.
    n_neighbors
        Neighbours of each cell in a graph.
    n_splits
        How often the counts are split into two halves.
    min_agreement
        Agreement that is asked for: adjusted Rand index, 1 for equal clusters and 0 for chance. Smaller values give
        more clusters that are less sure.
    use_rep
        Key of the denoised embedding.
    prior_key
        Key of the prior in the reference.
    key_added
        Key of the clusters.
    random_state
        Seed of neighbour searches and Leiden; the halves follow the seed of :func:`dice.tl.denoise`.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obs["dice_cluster"]`` categorical
        Clusters ``"0"``, ``"1"``, ... from the largest to the smallest; missing for cells without expression.
    ``adata.obs["dice_cluster_confidence"]`` float32
        How often a half of its counts keeps a cell with its cluster, from 0 to 1.
    ``adata.obsp["dice_cluster_connectivities"]``, ``adata.obsp["dice_cluster_distances"]`` (n_obs, n_obs) CSR
        The graph that was clustered, for ``neighbors_key="dice_cluster"`` in scanpy's tools.
    ``adata.uns["dice_cluster"]``
        ``curve`` (``resolution``, ``n_clusters``, ``agreement`` and its ``spread``), ``choice``
        (``resolution``, ``agreement``, ``halves``: the adjusted Rand index of two halves of the counts there,
        ``n_clusters``, and ``why`` in a sentence), ``call`` and ``warnings``.
    ``adata.uns["dice_cluster_colors"]``
        A colour for every cluster.

    Examples
    --------
    >>> import anndata, dice, numpy as np, scanpy as sc
    >>> rng = np.random.default_rng(0)
    >>> profiles = 3 * rng.gamma(0.3, size=(4, 300))
    >>> cells = anndata.AnnData(rng.poisson(profiles[np.arange(400) % 4]).astype("float32"))
    >>> sc.pp.normalize_total(cells, target_sum=1e4)
    >>> sc.pp.log1p(cells)
    >>> dice.tl.train_prior(cells, training=dice.Training(max_steps=20))
    >>> dice.tl.cluster(cells)
    >>> cells.obs["dice_cluster"].nunique()
    4
    """
    check_writable(adata, copy=copy)
    n_neighbors, n_splits = whole_number("n_neighbors", n_neighbors, least=2), whole_number("n_splits", n_splits)
    min_agreement, random_state = share("min_agreement", min_agreement), seed(random_state)
    keys = ClusterKeys(result_key(adata, key_added, "dice_cluster", besides=use_rep))
    with _log.recorded() as warned:
        query, denoised = denoised_query(adata, reference, use_rep, prior_key, uncertainty=False), Slots()
        if query is None:
            if use_rep in names(adata, "obsm"):
                raise SlotError(
                    f"adata.obsm[{use_rep!r}] was not made by dice.tl.denoise: set use_rep to an embedding that was, "
                    "or to a new name."
                )
            source = adata if reference is None else reference
            query = Query.of(adata, find_prior(source, key=prior_key), Options())
            denoised = query.slots(DenoiseKeys(use_rep), warned)
        elif use_rep not in names(adata, "obsm"):
            denoised = Slots(obsm={use_rep: np.asarray(query.posterior.mean)})
        found = find_clusters(
            query, n_splits=n_splits, n_neighbors=n_neighbors, min_agreement=min_agreement, random_state=random_state
        )
    _log.info(found.why)
    categories = [str(code) for code in range(found.n_clusters)]
    choice = {"n_clusters": found.n_clusters, "why": found.why}
    if found.chosen is not None:
        choice |= {name: float(getattr(found.curve, name)[found.chosen]) for name in ("resolution", "agreement")}
    if found.halves is not None:
        choice["halves"] = found.halves
    entry, obsp = graph_slots(keys.uns, found.graph, n_neighbors, "euclidean", short_seed(random_state), use_rep)
    entry |= {
        "curve": {name: np.asarray(values) for name, values in vars(found.curve).items()},
        "choice": choice,
        "call": {"n_splits": n_splits, "min_agreement": min_agreement, "use_rep": use_rep},
        "warnings": np.array(warned, dtype=str),
    }
    slots = Slots(
        obs={
            keys.cluster: pd.Categorical.from_codes(found.codes, categories),
            keys.confidence: found.confidence.astype(np.float32),
        },
        obsp=obsp,
        uns={keys.uns: entry, keys.colors: distinct(len(categories))},
    )
    return write(adata, denoised | slots, copy=copy)
