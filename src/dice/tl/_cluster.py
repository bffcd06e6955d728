"""Clusters that a second measurement would find again. There is no resolution to choose."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice import _log
from dice._arguments import choice, seed, short_seed, whole_number
from dice._clusters.find import check_enough_cells, find_clusters
from dice._clusters.partition import Flavor
from dice._clusters.tree import Cut, Level, level_of, stored_cut
from dice._data import read
from dice._data.checks import several_batches
from dice._data.colors import distinct
from dice._data.graph import graph_slots
from dice._data.matrix import Matrix
from dice._data.recipe import find_technologies
from dice._data.store import Reference, find_prior
from dice._data.value_checks import is_raw
from dice._data.values import expression_layer
from dice._data.write import Slots, all_or_nothing, check_writable, result_key, write
from dice._errors import SlotError
from dice._keys import ClusterKeys, DenoiseKeys, PriorKeys
from dice._model.counts import TARGET_SUM
from dice._query.query import Query
from dice._query.samples import denoised_query
from dice._train.cells import choose_genes
from dice._types import Seed
from dice.options import Options
from dice.tl._denoise import denoise
from dice.tl._train_prior import train_prior

#: Number of variable genes that a prior is learned from, as in scanpy's tutorials. More genes add noise and time: on
#: five sets of 10,000 to 18,000 genes, ARI was .66 with 2,000 genes, .57 with 3,000 and .51 with all (one seed).
N_TOP_GENES = 2000


def cluster(
    adata: AnnData,
    reference: Reference | None = None,
    *,
    batch_key: str | None = None,
    level: Level | None = None,
    n_neighbors: int = 15,
    n_splits: int = 4,
    flavor: Flavor = "igraph",
    use_rep: str = "X_dice",
    prior_key: str = "dice",
    key_added: str = "dice_cluster",
    random_state: Seed = 0,
    copy: bool = False,
) -> AnnData | None:
    """Find clusters that a second measurement of the same cells would tell apart, and their tree.

    Fine clusters (Leiden on shared neighbours of the denoised cells) are joined two by two, the least separate pair
    first. The separation of two clusters is measured along a score that is learned from other cells: a discriminant of
    the latents, or the likelihood ratio of two profiles of counts. The score with the larger separation is used.

    The separation is the smaller of two values. The first value uses the cells themselves: the distance of the means in
    units of the spread, and the share of cells in between. This value tells clusters from a continuum. The second value
    uses two independent halves of the counts of every cell, and tells clusters from noise. Clusters that differ by
    depth alone have no separation.

    The default cut keeps clusters that are further apart than the two halves of an even continuum. For any two
    clusters, a second measurement would place 92 % of the cells in the same cluster again.

    Parameters
    ----------
    adata
        A query, denoised or not, or a data set with its own prior. Without a reference and a prior, a prior is trained
        on these cells first: on the genes in ``adata.var["highly_variable"]``, or on the 2,000 most variable genes,
        which are then marked in ``adata.var["dice_genes"]``. Expression is log-normalised, or raw counts.
    reference
        The reference with the prior. None uses the prior that made the embedding if it is in memory, or the prior in
        `adata`.
    batch_key
        Column of ``adata.obs`` with donors, technologies or other batches. Harmony aligns the batches before cells are
        compared, so that a cell type can be one cluster over all batches. The embedding in `adata` does not change.
        Pass None if batches contain different cell types, if all cells are of one or two types, or if differences
        between batches are of interest.
    level
        Share of the cells of any two clusters that a second measurement must place in the same cluster again:
        ``"default"`` (0.92), ``"fine"`` (0.85), ``"coarse"`` (0.99) or a number. With a level, a tree that is stored in
        `adata` is cut again and nothing else is computed; a subset of the cells keeps the tree and the names of all
        cells. None computes the tree and cuts it at the default level.
    n_neighbors
        Number of neighbours of each cell in the graph, including the cell itself.
    n_splits
        Number of times that the counts are split into two halves. More than 20,000 cells are split only once.
    flavor
        Package that finds the fine clusters: ``"igraph"`` or ``"leidenalg"``.
    use_rep
        Key of the denoised embedding.
    prior_key
        Key of the prior in the reference.
    key_added
        Key of the clusters.
    random_state
        Seed of neighbour searches and Leiden. The halves depend on the seed of :func:`dice.tl.denoise`.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obs["dice_cluster"]`` categorical
        Clusters from the largest to the smallest; missing for cells without expression. Names are the same at all
        levels: clusters of the default cut are ``"0"``, ``"1"``, ..., parts of cluster 3 are ``"3.1"`` and ``"3.2"``,
        and clusters 0 and 3 together are ``"0+3"``.
    ``adata.obs["dice_cluster_confidence"]`` float32
        Share of the halves of a cell's counts that are placed in the cluster of the cell, from 0 to 1.
    ``adata.obsm["dice_cluster_leaves"]`` (n_obs, 1 + 2 n_splits) int16
        Leaf of the tree that contains the cell, then the leaves that contain its halves; -1 for cells without
        expression.
    ``adata.obsp["dice_cluster_connectivities"]``, ``adata.obsp["dice_cluster_distances"]`` (n_obs, n_obs) CSR
        The neighbour graph of the cells. Use it with ``neighbors_key="dice_cluster"`` in scanpy's tools.
    ``adata.uns["dice_cluster"]``
        ``tree`` (``joined``: the two nodes of every merge, leaves first, as in scipy's linkage; ``separation`` and
        ``agreement`` of every merge; ``sizes`` of the leaves; ``names`` of all nodes), ``choice`` (``n_clusters``,
        ``level``, ``agreement`` on the two closest clusters, and the reason ``why`` as a sentence), ``call`` and
        ``warnings``.
    ``adata.uns["dice_cluster_colors"]``
        A colour for every cluster.

    Examples
    --------
    >>> import anndata, dice, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> profiles = 3 * rng.gamma(0.3, size=(4, 300))
    >>> cells = anndata.AnnData(rng.poisson(profiles[np.arange(400) % 4]).astype("float32"))
    >>> dice.tl.cluster(cells)
    >>> cells.obs["dice_cluster"].nunique()
    4
    >>> dice.tl.cluster(cells, level=0.999)
    """
    check_writable(adata, copy=copy)
    n_neighbors, n_splits = whole_number("n_neighbors", n_neighbors, least=2), whole_number("n_splits", n_splits)
    wanted, random_state = level_of("default" if level is None else level), seed(random_state)
    flavor = choice("flavor", flavor, ("igraph", "leidenalg"))
    keys = ClusterKeys(result_key(adata, key_added, "dice_cluster", besides=use_rep))
    if level is not None and (slots := _cut_again(adata, keys, batch_key, wanted)) is not None:
        return write(adata, slots, copy=copy)
    batches = None if batch_key is None else several_batches(adata, batch_key)
    check_enough_cells(adata.n_obs, n_neighbors)  # before a prior is trained for nothing
    settings: dict[str, Any] = {"n_neighbors": n_neighbors, "n_splits": n_splits, "flavor": flavor}
    known = set(read.names(adata, "uns", "obsm"))
    learns = reference is None and not {use_rep, prior_key} & known
    if learns or (use_rep not in known and is_raw(Matrix(adata).sample())):
        target = adata.copy() if copy else adata
        with all_or_nothing(target):
            settings |= {"batch_key": batch_key, "prior_key": prior_key, "random_state": random_state}
            layer = _learn(target, batch_key, prior_key, random_state) if learns else None
            denoise(target, reference, layer=layer, prior_key=prior_key, key_added=use_rep, random_state=random_state)
            cluster(target, reference, level=level, use_rep=use_rep, key_added=key_added, **settings)
        return target if copy else None
    with _log.recorded() as warned:
        query, denoised = _denoised(adata, reference, use_rep, prior_key, warned)
        tree, leaves, graph = find_clusters(query, batches, random_state=random_state, **settings)
    cut = Cut(tree, wanted, query.measured)
    entry, obsp = graph_slots(keys.uns, graph, n_neighbors, "euclidean", short_seed(random_state), use_rep)
    # The seed of the halves is stored, because dice.tl.cluster_markers has to split the counts in the same way.
    called = settings | {"batch_key": batch_key, "use_rep": use_rep, "halves": query.options.random_state}
    entry |= {"call": called, "warnings": np.array(warned, dtype=str)}
    slots = _cut_slots(keys, cut, leaves, entry)
    return write(adata, denoised | slots | Slots(obsm={keys.leaves: leaves}, obsp=obsp), copy=copy)


def _learn(adata: AnnData, batch_key: str | None, prior_key: str, random_state: int) -> str | None:
    """Train a prior on the variable genes of these cells, and return the layer with their expression."""
    _log.say(f"adata holds no prior: training a prior on its {adata.n_obs:,} cells, and storing it in adata.")
    keys, layer = PriorKeys(prior_key), expression_layer(adata, None, TARGET_SUM, "adata")
    if batch_key is None and (mixed := find_technologies(adata, layer=layer)) is not None:
        _log.say(
            f"adata.obs[{mixed[0]!r}] explains {mixed[1]:.0%} of the variance, like a technology: pass "
            f"batch_key={mixed[0]!r} if all its values contain the same cell types."
        )
    mask_var = "highly_variable"
    if mask_var not in read.names(adata, "var"):
        every = np.ones(adata.n_vars, dtype=bool)
        chosen, _ = choose_genes(adata, every, n_top_genes=N_TOP_GENES, batch_key=batch_key, layer=layer, labels=None)
        mask_var = keys.genes
        write(adata, Slots(var={mask_var: chosen}), copy=False)
    train_prior(adata, layer=layer, mask_var=mask_var, key_added=keys.uns, random_state=random_state)
    return layer


def _denoised(
    adata: AnnData, reference: Reference | None, use_rep: str, prior_key: str,
    warned: list[str],
) -> tuple[Query, Slots]:  # fmt: skip
    """Return the denoised query, and the slots that `adata` lacks. Denoise with the defaults if needed."""
    query = denoised_query(adata, reference, use_rep, prior_key, uncertainty=False)
    if query is not None:
        there = use_rep in read.names(adata, "obsm")
        return query, Slots() if there else Slots(obsm={use_rep: np.asarray(query.posterior.mean)})
    if use_rep in read.names(adata, "obsm"):
        raise SlotError(f"adata.obsm[{use_rep!r}] was not made by dice.tl.denoise: set use_rep to another name.")
    query = Query.of(adata, find_prior(adata if reference is None else reference, key=prior_key), Options())
    return query, query.slots(DenoiseKeys(use_rep), warned)


def _cut_again(adata: AnnData, keys: ClusterKeys, batch_key: str | None, level: float) -> Slots | None:
    """Return the slots of another cut of the tree in `adata`, or None without a tree that fits `batch_key`."""
    record = read.record(adata, keys.uns)
    if not isinstance(record, Mapping) or "tree" not in record or keys.leaves not in read.names(adata, "obsm"):
        return None
    if batch_key not in (None, record.get("call", {}).get("batch_key")):
        return None
    leaves = read.array(adata, keys.leaves)
    cut = stored_cut(record, level, leaves[:, 0])
    return _cut_slots(keys, cut, leaves, dict(record))


def _cut_slots(keys: ClusterKeys, cut: Cut, leaves: Any, entry: dict[str, Any]) -> Slots:
    """Return the slots of a cut: clusters, confidence and record. Log the number of clusters and the reason for it."""
    _log.say(cut.why, result=True)
    codes, confidence = cut.place(leaves)
    clusters = pd.Categorical.from_codes(codes, cut.names)
    return Slots(
        obs={keys.cluster: clusters, keys.confidence: confidence.astype(np.float32)},
        uns={keys.uns: entry | cut.record(), keys.colors: distinct(len(cut.names))},
    )
