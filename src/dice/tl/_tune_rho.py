"""How much the prior may move a cell, judged by data that the embedding has not seen."""

from __future__ import annotations

import os
from collections.abc import Sequence

from anndata import AnnData

from dice._anndata.store import Prior, find_prior
from dice._anndata.write import Slots, check_writable, plain_params, write
from dice._arguments import choice
from dice._query.arguments import result_key
from dice._query.options import Options
from dice._query.query import Query
from dice._query.rho import CRITERIA, counts_of, find_curve


def tune_rho(
    adata: AnnData,
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    *,
    criterion: str = "genes",
    grid: Sequence[float] | None = None,
    labels_key: str | None = None,
    counts_layer: str = "counts",
    gene_key: str | None = None,
    min_gene_overlap: float = 0.2,
    layer: str | None = None,
    check: bool = True,
    key_added: str = "dice_rho",
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Find the rho that predicts best what the embedding has not seen; labels of the query are never looked at.

    ``dice.tl.denoise(adata, reference, rho="auto")`` does the same with ``criterion="genes"`` and goes on with it.

    Parameters
    ----------
    adata
        The query. At most 1,000 of its cells are judged by.
    reference
        As in :func:`dice.tl.denoise`.
    criterion
        ``"genes"`` embeds cells from a random half of their genes and predicts the other half (squared error of
        standardised expression). ``"counts"`` splits raw counts in two and predicts one half from the other (Poisson
        loss). ``"sure"`` is Stein's unbiased estimate of the squared error in the latents, for noise of the measured
        level. ``"labels"`` classifies held-out cells of the reference, made as noisy as the query (log-loss).
    grid
        Values of rho in PCA units; None is from 0 to 1.5 times the latent scale.
    labels_key
        Column of ``reference.obs`` for ``criterion="labels"``.
    counts_layer
        Layer with the raw counts for ``criterion="counts"``.
    gene_key
        Column of ``adata.var`` with the gene names.
    min_gene_overlap
        Smallest share of the prior's genes that the query must have.
    layer
        Layer of the query to use instead of ``adata.X``.
    check
        Compare the values of the query with the reference's.
    key_added
        Key of the curve.
    random_state
        Seed of the cells, of the halves and of the noise.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.uns["dice_rho"]``
        ``rho`` (the best), ``grid``, ``loss`` and ``error`` (its standard error over cells), ``criterion``, ``n_cells``
        and ``call``.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    >>> dice.tl.tune_rho(query, reference, criterion="sure")
    >>> query.uns["dice_rho"]["grid"].shape
    (8,)
    """
    check_writable(adata, copy=copy)
    choice("criterion", criterion, CRITERIA)
    key_added = result_key(adata, key_added, "dice_rho")
    source = adata if reference is None else reference
    options = Options(
        gene_key=gene_key, min_gene_overlap=min_gene_overlap, layer=layer, check=check, random_state=random_state
    )
    query = Query.of(adata, find_prior(source), options)
    curve = find_curve(
        query,
        criterion,
        grid=grid,
        counts=counts_of(adata, counts_layer, query) if criterion == "counts" else None,
        labelled=(source, labels_key) if isinstance(source, AnnData) and labels_key is not None else None,
    )
    call = plain_params(
        criterion=criterion, labels_key=labels_key, counts_layer=counts_layer, gene_key=gene_key,
        min_gene_overlap=float(min_gene_overlap), layer=layer, random_state=random_state,
    )  # fmt: skip
    return write(adata, Slots(uns={key_added: curve.record() | {"call": call}}), copy=copy)
