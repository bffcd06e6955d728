"""A neighbour graph that knows what it does not know: averaged over posterior samples."""

from __future__ import annotations

import os

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._anndata.store import Prior
from dice._anndata.write import Slots, check_writable, write
from dice._arguments import choice, new_key, whole_number
from dice._errors import InputError, SlotError
from dice._keys import DenoiseKeys
from dice._query.arguments import result_key
from dice._query.options import stored_call
from dice._threads import openmp_threads_kept
from dice.tl._denoise import denoise

#: Averaged connectivities below this are dropped: edges of few samples and little weight.
MIN_WEIGHT = 1e-3
#: Distances that the neighbour searches for few and for many cells both know.
METRICS = ("euclidean", "cosine", "correlation", "manhattan", "chebyshev", "canberra", "braycurtis")


def neighbors(
    adata: AnnData,
    *,
    n_neighbors: int = 15,
    n_samples: int = 10,
    metric: str = "euclidean",
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    key: str = "X_dice",
    key_added: str = "dice_neighbors",
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Neighbour graph averaged over posterior samples, in scanpy's own layout.

    Each posterior sample of the cells gives one of scanpy's fuzzy graphs; their connectivities are averaged. Edges that
    survive the cells' own uncertainty stay, accidental ones fade. Use it with ``neighbors_key="dice_neighbors"`` in
    :func:`scanpy.tl.leiden`, :func:`scanpy.tl.umap`, :func:`scanpy.tl.paga` or :func:`scanpy.tl.diffmap`.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.denoise`. Its stored samples are used if there are at least `n_samples`;
        otherwise :func:`dice.tl.denoise` is called with the stored rho and noise to draw them.
    n_neighbors
        Neighbours of each cell in the graph of one sample.
    n_samples
        Posterior samples to average over.
    metric
        Distance between cells: ``"euclidean"``, ``"cosine"``, ``"correlation"``, ``"manhattan"``, ``"chebyshev"``,
        ``"canberra"`` or ``"braycurtis"``.
    reference
        Where the prior is, for drawing samples; None takes the prior inside `adata`.
    key
        Key of the denoised embedding.
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
        Mean connectivity over the samples; means below 0.001 are dropped.
    ``adata.obsp["dice_neighbors_distances"]`` (n_obs, n_obs) CSR float64
        Mean distance over those samples in which two cells were neighbours.
    ``adata.uns["dice_neighbors"]``
        As :func:`scanpy.pp.neighbors` writes it with ``key_added``.

    Examples
    --------
    >>> import dice, scanpy as sc
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    >>> dice.tl.denoise(query, reference, rho=30, n_samples=3)
    >>> dice.tl.neighbors(query, n_samples=3)
    >>> query.obsp["dice_neighbors_connectivities"].shape
    (400, 400)
    """
    check_writable(adata, copy=copy)
    n_neighbors, n_samples = whole_number("n_neighbors", n_neighbors, least=2), whole_number("n_samples", n_samples)
    random_state = whole_number("random_state", random_state, least=0)
    key_added, metric = result_key(adata, key_added, "dice_neighbors", besides=key), choice("metric", metric, METRICS)
    if adata.n_obs <= n_neighbors:
        raise InputError(f"{adata.n_obs} cells are too few for n_neighbors={n_neighbors}: pass a smaller number.")
    samples = posterior_samples(adata, reference, n_samples, key)
    connectivities, distances = average_graph(samples, n_neighbors, metric, random_state)
    names = {f"{part}_key": f"{key_added}_{part}" for part in ("connectivities", "distances")}
    params = {
        "n_neighbors": n_neighbors,
        "method": "umap",
        "random_state": random_state,
        "metric": metric,
        "use_rep": key,
    }
    slots = Slots(
        obsp={names["connectivities_key"]: connectivities, names["distances_key"]: distances},
        uns={key_added: names | {"params": params, "n_samples": n_samples}},
    )
    return write(adata, slots, copy=copy)


def posterior_samples(
    adata: AnnData, reference: AnnData | Prior | str | os.PathLike[str] | None, n_samples: int, key: str
) -> NDArray[np.float32]:
    """Stored samples (n, n_samples, k), or new ones drawn as the stored embedding was computed."""
    keys = DenoiseKeys(new_key("key", key, "X_dice"))
    stored = adata.obsm.get(keys.samples)
    if stored is not None and stored.shape[1] >= n_samples:
        return np.asarray(stored[:, :n_samples])
    if keys.uns not in adata.uns:
        raise SlotError(f"There is no embedding in adata.obsm[{key!r}]: call dice.tl.denoise(adata, reference) first.")
    call = stored_call(adata.uns[keys.uns])
    call |= {"deconvolve": False, "n_samples": n_samples, "key_added": key, "uncertainty": False, "check": False}
    drawn: AnnData = denoise(adata, reference, copy=True, **call)
    return np.asarray(drawn.obsm[keys.samples])


def average_graph(
    samples: NDArray[np.float32], n_neighbors: int, metric: str, random_state: int
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Mean connectivities, and mean distances where there was an edge, over the graphs of all samples."""
    n_cells, n_samples = samples.shape[:2]
    weights, lengths, edges = (sparse.csr_matrix((n_cells, n_cells)) for _ in range(3))
    with _log.progress(total=n_samples, desc="Neighbours", unit="sample") as bar:
        for index in range(n_samples):
            connectivities, distances = sample_graph(samples[:, index], n_neighbors, metric, random_state)
            weights, lengths, edges = weights + connectivities, lengths + distances, edges + (distances > 0)
            bar.update()
    weights = (weights / n_samples).astype(np.float32)
    weights.data[weights.data < MIN_WEIGHT] = 0
    weights.eliminate_zeros()
    # Both have the same entries: every edge that was found in any sample.
    lengths.sort_indices()
    edges.sort_indices()
    lengths.data /= edges.data
    return weights, lengths


def sample_graph(
    embedding: NDArray[np.float32], n_neighbors: int, metric: str, random_state: int
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Connectivities and distances that scanpy computes for one embedding."""
    import scanpy as sc

    cells = AnnData(obsm={"X": np.ascontiguousarray(embedding)}, shape=(len(embedding), 0))
    with openmp_threads_kept():
        sc.pp.neighbors(cells, n_neighbors=n_neighbors, use_rep="X", metric=metric, random_state=random_state)
    distances = sparse.csr_matrix(cells.obsp["distances"])
    # A distance of zero between two equal cells is an edge all the same.
    distances.data = np.maximum(distances.data, np.finfo(np.float64).tiny)
    return sparse.csr_matrix(cells.obsp["connectivities"]), distances
