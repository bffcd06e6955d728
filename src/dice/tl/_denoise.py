"""Denoising of a query under a prior."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from anndata import AnnData

from dice import _log
from dice._anndata.store import Prior, find_prior
from dice._anndata.write import check_writable, write
from dice._core.posterior.steps import LogDensity
from dice._device import resolve_device
from dice._keys import DenoiseKeys
from dice._query.arguments import check_key
from dice._query.options import Options
from dice._query.posterior import Posterior, denoise_slots, run_plan
from dice._query.query import Query
from dice._query.rho import tuned, untuned


def denoise(
    adata: AnnData,
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    *,
    rho: float | Sequence[float] | str | None = None,
    method: str = "auto",
    n_samples: int = 0,
    likelihood: str | LogDensity = "gaussian",
    df: float = 4.0,
    noise: str | float = "estimate",
    deconvolve: bool = False,
    calibrate: str | bool | Mapping[str, Any] = "auto",
    batch_key: str | None = None,
    n_chains: int = 1,
    n_iterations: int | None = None,
    burn_in: int | None = None,
    schedule: str = "linear",
    average: str = "rao-blackwell",
    uncertainty: bool = True,
    gene_key: str | None = None,
    min_gene_overlap: float = 0.2,
    layer: str | None = None,
    check: bool = True,
    key_added: str = "X_dice",
    chunk_size: int | None = None,
    device: str | torch.device = "auto",
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Denoise a query with the prior of a reference.

    Parameters
    ----------
    adata
        The query: log-normalised expression, as the reference was. Genes are matched by name; genes that the query
        lacks are unobserved, never zero.
    reference
        AnnData object with a prior, a :class:`dice.Prior`, or the path of a file with one; None takes the
        prior inside `adata` itself.
    rho
        How much the prior may move a cell beyond the measured noise, in PCA units. Larger values pull harder
        towards the reference. None takes half of the prior's latent scale, or 0 where a prior without labels pulls the
        query more than 1.2 times as hard as cells of the reference; ``"auto"`` finds the value that predicts held-out
        genes best (:func:`dice.tl.tune_rho`) and leaves its curve in ``adata.uns["X_dice"]["tuning"]``. A pair
        ``(start, end)`` or a sequence anneals rho over the iterations of split Gibbs, as the paper does.
    method
        ``"direct"`` is exact for Gaussian noise of one variance, all genes and one rho, and takes one network
        evaluation per cell. ``"gibbs"`` is the paper's Algorithm 1. ``"auto"`` is direct where that is exact, else a
        Gibbs chain.
    n_samples
        Number of posterior samples of each cell to keep.
    likelihood
        ``"gaussian"``; ``"student_t"`` for heavy tails per cell; ``"student_t_genes"`` for heavy tails per gene; or a
        function that maps residuals (cells, genes) to their log densities (cells,) with torch operations.
    df
        Degrees of freedom of the Student-t likelihoods.
    noise
        Standard deviation (for Student-t the scale) of the query's noise per scaled gene. ``"estimate"`` measures it
        from what the loadings do not explain, ``"per_cell"`` does so for each cell (shrunk to the mean), ``"per_gene"``
        weighs the genes by their noise in the reference.
    deconvolve
        The reference's latents are noisy themselves. True removes that noise too: denoising beyond the
        reference, which sharpens label transfer. It changes the mean of the direct method alone.
    calibrate
        What to do about a query that stands apart from the reference, by its depth, technology or site. ``"offset"``
        finds one offset of all cells under the prior, whatever the composition of the query; ``"kinds"`` one for each
        of up to 100 kinds of cells of the reference; ``"mean"`` brings the mean of the query to that of the
        reference, which is right where both have the same composition. ``"auto"`` is ``"offset"`` where the prior
        pulls the query more than 1.2 times as hard as cells of the reference and an offset explains half of what is
        too much, as for cells and a reference of nuclei; where nothing explains it, or where all cells are of one
        kind, which the reference may lack, the query is left alone, as by False. Any other query gets ``"kinds"``,
        which hardly touches one that matches the reference. Before all this, ``"auto"`` stretches a query that was
        sequenced less deeply away from the place of an empty cell. ``uns["X_dice"]["calibration"]`` of an earlier call
        applies what that call found, to other cells of the same query for example.
    batch_key
        Column of ``adata.obs`` with batches of the query: each gets offsets of its own, and small ones share those
        of the whole query.
    n_chains
        Independent chains of Gibbs, at least `n_samples`; their last states are averaged with ``average="chains"``.
    n_iterations
        Iterations of each chain; None chooses (100 for a pair, else 30 or what the noise asks for).
    burn_in
        Iterations left out of averages; None is a third, or what the noise asks for.
    schedule
        ``"linear"`` or ``"geometric"`` interpolation of a pair `rho`.
    average
        ``"rao-blackwell"`` averages D(Z; rho) along the chain, ``"chains"`` the last states of the chains.
    uncertainty
        Whether to compute ``adata.obs["dice_uncertainty"]`` (four more evaluations on the direct path).
    gene_key
        Column of ``adata.var`` with the gene names, where ``adata.var_names`` are of another kind than the prior's.
    min_gene_overlap
        Smallest share of the prior's genes that the query must have.
    layer
        Layer to denoise instead of ``adata.X``.
    check
        Compare the values with the reference's: raw counts, scaled, unlogged or twice logged values are refused.
    key_added
        Key of the embedding; other slots derive their name from it.
    chunk_size
        Cells that are worked on at once; None chooses about 64 MB. A lazy matrix is read in its own blocks.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or any torch device; for a lazy matrix, of the workers.
    random_state
        Seed: a cell's result depends on it and on the cell's name, not on its neighbours in the file.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obsm["X_dice"]`` (n_obs, k) float32
        Posterior mean of every cell.
    ``adata.obsm["X_dice_pca"]`` (n_obs, k) float32
        The projection it started from.
    ``adata.obsm["X_dice_samples"]`` (n_obs, n_samples, k) float32
        Posterior samples, if asked for.
    ``adata.obs["dice_uncertainty"]`` float32
        Posterior standard deviation, root mean square over the latents, in PCA units.
    ``adata.obs["dice_empty"]`` bool
        Cells without any expression of the prior's genes, which get the prior; only if there are any.
    ``adata.uns["X_dice"]``
        ``call`` (every argument that matters), ``params`` (what was decided: method, noise, rho, ...), ``genes`` (how
        many were found), ``calibration`` (the chosen strategy, the pull and variety by which it was chosen and the
        offsets, batches x kinds x k, with one kind where all cells share an offset; the ``depth`` of every batch and
        the place of an ``empty`` cell where any is shallow), ``apart`` (how many times as hard as cells of the
        reference the prior pulls the query, where rho was left to that) and ``warnings`` (strings).

    Notes
    -----
    Where the matrix is a dask array, one pass over it is made by the call: for the noise, cells without expression and
    values that are not finite. What it sets in ``obsm`` is lazy, computed whenever it is asked for, for example while
    ``adata.write_zarr`` writes it, and so is the uncertainty, as ``adata.obsm["dice_uncertainty"]`` (n_obs, 1), because
    columns of ``adata.obs`` cannot be. A :class:`dask.distributed.Client` that was started before spreads both over its
    workers.

    The paper's settings are ``dice.tl.denoise(query, reference, method="gibbs", rho=(5, 0.5), n_iterations=100,
    n_chains=10, average="chains")`` for cells and ``rho=20, n_iterations=200`` for its synthetic experiments.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    >>> dice.tl.denoise(query, reference, rho=30, n_samples=5)
    >>> query.obsm["X_dice"].shape, query.obsm["X_dice_samples"].shape
    ((400, 15), (400, 5, 15))
    """
    check_writable(adata, copy=copy)
    prior = find_prior(adata if reference is None else reference)
    keys = DenoiseKeys(check_key(adata, key_added))
    options = Options(
        rho=rho, method=method, n_samples=n_samples, likelihood=likelihood, df=df, noise=noise, deconvolve=deconvolve,
        calibrate=calibrate, batch_key=batch_key,
        n_chains=n_chains, n_iterations=n_iterations, burn_in=burn_in, schedule=schedule, average=average,
        uncertainty=uncertainty, gene_key=gene_key, min_gene_overlap=min_gene_overlap, layer=layer, check=check,
        chunk_size=chunk_size, random_state=random_state,
    )  # fmt: skip
    with _log.recorded() as warned:
        query, tuning = tuned(Query.of(adata, prior, options))
        if not query.matrix.is_lazy:
            resolve_device(device)
        cells, here = query.read(), "cpu" if query.matrix.is_lazy else device
        calibration = query.calibrate(cells, here)
        query, apart = untuned(query, cells, calibration, here)
        plan, level, each = query.settle(cells, calibration.shift)
    posterior = Posterior(prior, query.projector, plan, each, query.keys, device, calibration.shift)
    result = run_plan(posterior, query.matrix, cells)
    record = query.record(plan, level, calibration, result.acceptance) | tuning | apart
    record["warnings"] = np.array(warned, dtype=str)
    return write(adata, denoise_slots(keys, cells, result, record), copy=copy)
