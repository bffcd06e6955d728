"""A neighbour graph, averaged over posterior samples."""

from anndata import AnnData

from dice._arguments import choice, seed, whole_number
from dice._data.graph import average_graph, graph_slots, sample_graphs
from dice._data.store import Reference
from dice._data.write import Slots, check_writable, result_key, write
from dice._errors import InputError
from dice._query.samples import posterior_samples
from dice._types import Seed

#: Distances that both neighbour searches support: the search for few cells and the search for many cells.
METRICS = ("euclidean", "cosine", "correlation", "manhattan", "chebyshev", "canberra", "braycurtis")


def neighbors(
    adata: AnnData,
    reference: Reference | None = None,
    *,
    n_neighbors: int = 15,
    n_samples: int = 10,
    metric: str = "euclidean",
    use_rep: str = "X_dice",
    prior_key: str = "dice",
    key_added: str = "dice_neighbors",
    random_state: Seed = 0,
    copy: bool = False,
) -> AnnData | None:
    """Compute a neighbour graph that is averaged over posterior samples, in scanpy's format.

    Each posterior sample of the cells gives one of scanpy's fuzzy graphs, and their connectivities are averaged. Edges
    that occur in only a few samples become weak. Use the graph with ``neighbors_key="dice_neighbors"`` in
    :func:`scanpy.tl.leiden`, :func:`scanpy.tl.umap`, :func:`scanpy.tl.paga` or :func:`scanpy.tl.diffmap`.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.denoise`. Stored samples are used if there are at least `n_samples`. Otherwise
        samples are drawn with the settings of the stored embedding.
    reference
        The reference with the prior, to draw samples. None uses the prior that made the embedding if it is in memory,
        or the prior in `adata`.
    n_neighbors
        Number of neighbours of each cell in the graph of one sample.
    n_samples
        Number of posterior samples to average over.
    metric
        Distance between cells: ``"euclidean"``, ``"cosine"``, ``"correlation"``, ``"manhattan"``, ``"chebyshev"``,
        ``"canberra"`` or ``"braycurtis"``.
    use_rep
        Key of the denoised embedding.
    prior_key
        Key of the prior in the reference.
    key_added
        Key of the graph.
    random_state
        Seed of the neighbour search.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obsp["dice_neighbors_connectivities"]`` (n_obs, n_obs) CSR float32
        Mean connectivity over the samples. Means below 0.001 are dropped.
    ``adata.obsp["dice_neighbors_distances"]`` (n_obs, n_obs) CSR float64
        Mean distance of two cells over the samples in which they are neighbours.
    ``adata.uns["dice_neighbors"]``
        As :func:`scanpy.pp.neighbors` writes it with ``key_added``.

    Examples
    --------
    >>> import dice, scanpy as sc
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> dice.tl.denoise(query, reference, rho=30, n_samples=3)
    >>> dice.tl.neighbors(query, n_samples=3)
    >>> query.obsp["dice_neighbors_connectivities"].shape
    (400, 400)
    """
    check_writable(adata, copy=copy)
    n_neighbors, n_samples = whole_number("n_neighbors", n_neighbors, least=2), whole_number("n_samples", n_samples)
    random_state = seed(random_state)
    key_added = result_key(adata, key_added, "dice_neighbors", besides=use_rep)
    metric = choice("metric", metric, METRICS)
    if adata.n_obs <= n_neighbors:
        raise InputError(f"{adata.n_obs} cells are too few for n_neighbors={n_neighbors}: pass a smaller number.")
    samples = posterior_samples(adata, reference, n_samples, use_rep, prior_key)
    graph = average_graph(sample_graphs(list(samples.swapaxes(0, 1)), n_neighbors, metric, random_state))
    entry, obsp = graph_slots(key_added, graph, n_neighbors, metric, random_state, use_rep)
    slots = Slots(obsp=obsp, uns={key_added: entry | {"n_samples": n_samples}})
    return write(adata, slots, copy=copy)
