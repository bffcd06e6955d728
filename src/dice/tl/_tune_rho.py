"""Choice of rho by held-out data."""

from collections.abc import Sequence
from typing import Literal

from anndata import AnnData

from dice._arguments import as_plain, choice
from dice._data.store import Reference, find_prior
from dice._data.values import takes_counts
from dice._data.write import Slots, check_writable, result_key, write
from dice._query.query import Query
from dice._query.rho import find_curve
from dice._types import Seed
from dice.options import Checks, Options


@takes_counts
def tune_rho(
    adata: AnnData,
    reference: Reference | None = None,
    *,
    criterion: Literal["auto", "counts", "genes"] = "auto",
    grid: Sequence[float] | None = None,
    layer: str | None = None,
    gene_key: str | None = None,
    check: bool | Checks = True,
    prior_key: str = "dice",
    key_added: str = "dice_rho",
    random_state: Seed = 0,
    copy: bool = False,
) -> AnnData | None:
    """Find the rho that predicts held-out counts or genes best. Labels of the query are not used.

    Use the result with ``dice.tl.denoise(adata, reference, rho=adata.uns["dice_rho"]["rho"])``.

    Parameters
    ----------
    adata
        The query. At most 1,000 of its cells are used.
    reference
        As in :func:`dice.tl.denoise`.
    criterion
        ``"counts"`` splits the counts of a cell in two and predicts one half from the other (Poisson loss).
        ``"genes"`` embeds cells from a random half of their genes and predicts the other half (squared error of
        standardised expression), under Gaussian noise. ``"auto"`` is ``"counts"`` if :func:`dice.tl.denoise` reads the
        query as counts, and otherwise ``"genes"``. Both score the mean that :func:`dice.tl.denoise` computes.
    grid
        Values of rho in PCA units. None uses eight values from 0 to 1.5 times the latent scale of the prior.
    layer, gene_key, check, prior_key
        As in :func:`dice.tl.denoise`.
    key_added
        Key of the curve.
    random_state
        Seed for the choice of cells, the halves and the noise.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.uns["dice_rho"]``
        ``rho`` (the best value), ``grid``, ``loss``, ``error`` (standard error of the loss over cells), ``criterion``,
        ``n_cells`` and ``call``.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> dice.tl.tune_rho(query, reference, grid=[0, 10, 30])
    >>> query.uns["dice_rho"]["grid"].shape
    (3,)
    """
    check_writable(adata, copy=copy)
    choice("criterion", criterion, ("auto", "counts", "genes"))
    key_added = result_key(adata, key_added, "dice_rho")
    options = Options(layer=layer, gene_key=gene_key, check=check, random_state=random_state)
    query = Query.of(adata, find_prior(adata if reference is None else reference, key=prior_key), options)
    curve = find_curve(query, criterion, grid)
    call = {name: getattr(options, name) for name in ("layer", "gene_key", "check", "random_state")}
    call["criterion"] = curve["criterion"]
    return write(adata, Slots(uns={key_added: curve | {"call": as_plain(call)}}), copy=copy)
