"""Denoising of a query under a prior."""

from collections.abc import Mapping
from typing import Any, Literal

from anndata import AnnData

from dice import _log
from dice._data.store import Reference, find_prior
from dice._data.values import takes_counts
from dice._data.write import check_writable, embedding_key, write
from dice._keys import DenoiseKeys
from dice._query.query import Query
from dice._types import Seed
from dice.options import Checks, Direct, Gaussian, Gibbs, LogDensity, Options, Rho, Shift, StudentT


@takes_counts
def denoise(
    adata: AnnData,
    reference: Reference | None = None,
    *,
    rho: Rho = "auto",
    n_samples: int = 0,
    likelihood: Literal["auto", "gaussian", "student_t"] | Gaussian | StudentT | LogDensity = "auto",
    method: Literal["auto", "direct", "gibbs"] | Direct | Gibbs = "auto",
    shift: Literal["auto", "offset", "clusters", "mean", False] | Shift | Mapping[str, Any] = "auto",
    layer: str | None = None,
    gene_key: str | None = None,
    check: bool | Checks = True,
    prior_key: str = "dice",
    key_added: str = "X_dice",
    random_state: Seed = 0,
    copy: bool = False,
) -> AnnData | None:
    """Denoise a query with the prior of a reference.

    Parameters
    ----------
    adata
        The query: log-normalised expression, or raw counts. Genes are matched by name. Genes that the query lacks are
        treated as unobserved, not as zero.
    reference
        AnnData object with a prior, or the path or name of a prior. It can also be a :class:`dice.Prior`. None uses the
        prior inside `adata`.
    rho
        Standard deviation of Gaussian noise that is assumed in addition to the noise of the likelihood, in PCA units.
        Larger values move cells further towards the reference. ``"auto"`` is 0 with the noise of counts, and otherwise
        half of the latent scale of the prior. A pair ``(start, end)`` or a sequence changes rho over the iterations of
        split Gibbs, as in the paper. :func:`dice.tl.tune_rho` finds the value that predicts held-out counts or genes
        best.
    n_samples
        Number of posterior samples of each cell to keep.
    likelihood
        Noise of the query. ``"auto"`` is the noise of counts at the depth of each cell, if both reference and query are
        log-normalised counts. Otherwise it is Gaussian noise with the variance of the residuals. Other values are
        ``"gaussian"``, ``"student_t"`` (heavy tails), a :class:`dice.Gaussian` or :class:`dice.StudentT` with settings,
        or a function that maps residuals (cells, genes) to log densities (cells,) with torch operations.
    method
        ``"direct"`` takes one network evaluation per cell. It is used for counts, and it is exact for isotropic
        Gaussian noise and a single rho. Genes that the query lacks are filled in. ``"gibbs"`` is Algorithm 1 of the
        paper. ``"auto"`` is the direct method if possible, and otherwise a Gibbs chain. Pass a :class:`dice.Direct` or
        :class:`dice.Gibbs` to change settings.
    shift
        Difference between query and reference to remove from the embedding: ``"offset"`` (one offset for all cells),
        ``"clusters"`` (one for each soft cluster of the reference), ``"mean"`` (the difference of the means), or a
        :class:`dice.Shift`, which also takes batches. ``"auto"`` and False remove nothing. To apply the offsets of an
        earlier call to other cells of the same query, pass its ``adata.uns["X_dice"]["shift"]``.
    layer
        Layer to use instead of ``adata.X``.
    gene_key
        Column of ``adata.var`` with gene names of the same kind as in the prior, instead of ``adata.var_names``.
    check
        Whether to log-normalise raw counts in ``X``, and to refuse values unlike those of the reference: scaled,
        unlogged or twice logged values, and raw counts in a layer. :class:`dice.Checks` also sets the share of the
        prior's genes that the query must have.
    prior_key
        Key of the prior in the reference.
    key_added
        Key of the embedding; other slots derive their name from it.
    random_state
        Seed. A NumPy generator draws a seed, and None uses a new seed each time. The random numbers of a
        cell depend on the seed and the name of the cell, not on other cells.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obsm["X_dice"]`` (n_obs, k) float32
        Posterior mean of every cell.
    ``adata.obsm["X_dice_pca"]`` (n_obs, k) float32
        Projection of every cell on the loadings.
    ``adata.obsm["X_dice_samples"]`` (n_obs, n_samples, k) float32
        Posterior samples, if `n_samples` is not 0.
    ``adata.obs["dice_uncertainty"]`` float32
        Posterior standard deviation in PCA units, as the root mean square over the coordinates.
    ``adata.obs["dice_empty"]`` bool
        True for cells that express none of the prior's genes. Their posterior is the prior. Set only if there are such
        cells.
    ``adata.uns["X_dice"]``
        ``call`` (all arguments that affect the result), ``params`` (method, noise, rho, and the SHA-256 of the prior),
        ``genes`` (the number of genes that were found), ``shift`` (the strategy and the offsets, an array of batches x
        clusters x k with one cluster if all cells share an offset) and ``warnings`` (strings).

    Notes
    -----
    If the matrix is a dask array, dask's threads project its blocks. If a :class:`dask.distributed.Client` was started
    before, its workers do. The results are in memory.

    The paper's settings are ``dice.tl.denoise(query, reference, rho=(5, 0.5), method=dice.Gibbs(n_iterations=100,
    n_chains=10, average="chains"))`` for cells and ``rho=20`` with ``n_iterations=200`` for its synthetic experiments.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> dice.tl.denoise(query, reference, rho=30, n_samples=5)
    >>> query.obsm["X_dice"].shape, query.obsm["X_dice_samples"].shape
    ((400, 15), (400, 5, 15))
    """
    check_writable(adata, copy=copy)
    prior = find_prior(adata if reference is None else reference, key=prior_key, query=adata)
    keys = DenoiseKeys(embedding_key(adata, key_added))
    options = Options(
        rho=rho, n_samples=n_samples, likelihood=likelihood, method=method, shift=shift, layer=layer,
        gene_key=gene_key, check=check, random_state=random_state,
    )  # fmt: skip
    _log.say_cost("denoise", adata.n_obs)
    with _log.recorded() as warned:
        slots = Query.of(adata, prior, options).slots(keys, warned)
    return write(adata, slots, copy=copy)
