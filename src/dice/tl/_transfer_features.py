"""Predict features of a query, such as proteins, that were measured only in the reference."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from anndata import AnnData

from dice import _log
from dice._arguments import as_plain, share
from dice._data.features import feature_key, read_features, with_cells
from dice._data.store import find_prior
from dice._data.values import takes_counts
from dice._data.write import check_writable, write
from dice._features.transfer import N_SAMPLES, feature_slots, predict_features
from dice._keys import FeatureKeys
from dice._query.query import Query
from dice._types import Seed
from dice.options import Checks, Options, Shift


@takes_counts
def transfer_features(
    adata: AnnData,
    reference: AnnData | str | os.PathLike[str],
    features_key: str | Sequence[str],
    *,
    alpha: float = 0.1,
    reference_batch_key: str | None = None,
    shift: Literal["auto", "offset", "clusters", "mean", False] | Shift | Mapping[str, Any] = "auto",
    layer: str | None = None,
    gene_key: str | None = None,
    check: bool | Checks = True,
    prior_key: str = "dice",
    key_added: str | None = None,
    random_state: Seed = 0,
    copy: bool = False,
) -> AnnData | None:
    """Predict features of every query cell, with intervals that hold the true value with probability 1 - alpha.

    Features are learned from the reference cells, which are read with the query's genes and depth. Predictions are a
    weighted mean of ridge regression and nearest neighbours, each on the projection and on posterior samples. Held-out
    cells determine the weights for each feature and calibrate the intervals. Intervals are narrow where similar cells
    agree and the posterior is certain.

    Parameters
    ----------
    adata
        The query: log-normalised expression, like the reference, or raw counts. Features of the query are never used.
    reference
        AnnData object with features and a prior of :func:`dice.tl.train_prior`. It can also be a path, or a MuData
        object in which one modality has the prior.
    features_key
        Numeric features of the reference: a key of ``obsm`` (a DataFrame, or an array with names in
        ``uns["<key>_names"]``), a column of ``obs`` or a list of columns, ``"layer:NAME"`` for the genes of a layer, or
        ``"mod:NAME"`` for a modality of a MuData object. NaN means not measured; each feature is learned from the cells
        in which it was measured. Normalise proteins first (:func:`dice.pp.clr`).
    alpha
        Share of cells whose interval may miss the true value.
    reference_batch_key
        Column of ``reference.obs`` with batches. Whole batches are then held out, so that intervals allow for
        differences between batches. With None, intervals are widened by a fixed factor if the query differs from the
        reference.
    shift
        Difference between query and reference to remove, as in :func:`dice.tl.denoise`. ``"auto"`` removes the offset
        of each soft cluster.
    layer, gene_key, check, prior_key
        As in :func:`dice.tl.denoise`.
    key_added
        Key of the predictions, by default ``"<features_key>_dice"``. The names of other slots derive from it.
    random_state
        Seed. The result of a cell depends on the seed and on the name of the cell.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets, for ``features_key="protein"``:

    ``adata.obsm["protein_dice"]`` DataFrame (n_obs, n_features) float32
        Predicted features. Slashes in their names become ``"_"``, because files cannot hold them.
    ``adata.obsm["protein_dice_low"]``, ``adata.obsm["protein_dice_high"]`` DataFrame (n_obs, n_features) float32
        Lower and upper end of the interval.
    ``adata.uns["protein_dice"]``
        ``call``, ``params`` (number of reference cells, AUC that separates query and reference, factor of the
        intervals), ``features`` (for each feature the ``name``, the ``correlation`` with measured values of held-out
        cells, the mean ``width`` of the intervals in the query, ``held_out_width`` and ``marginal_width``, the widths
        in held-out cells with and without a prediction, ``n_cells`` with a value, and ``useless``, True if the
        prediction is no better than a constant and must not be used), ``candidates`` (the mean ``weight`` of each
        method, and its ``weights`` per feature), ``shift`` (as in :func:`dice.tl.denoise`) and ``warnings``.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> reference.obsm["protein"] = reference.obsm["U_true"][:, :2]
    >>> dice.tl.transfer_features(query, reference, "protein")
    >>> query.obsm["protein_dice"].shape
    (400, 2)
    """
    cells = with_cells(reference, prior_key)
    check_writable(adata, copy=copy, reference=cells)
    prior, alpha = find_prior(cells, key=prior_key, query=adata), share("alpha", alpha)
    features = read_features(reference, cells, features_key)
    keys = FeatureKeys(feature_key(adata, key_added, features.title))
    options = Options(
        n_samples=N_SAMPLES, uncertainty=False, shift=shift, layer=layer, gene_key=gene_key, check=check,
        random_state=random_state,
    )  # fmt: skip
    if isinstance(options.shift, Shift) and options.shift.strategy == "auto" and prior.soft_clusters is not None:
        options = replace(options, shift=replace(options.shift, strategy="clusters"))
    with _log.recorded() as warned:
        query = Query.of(adata, prior, options)
        model, mean, half, params = predict_features(query, cells, features, reference_batch_key, alpha, prior_key)
    asked = {"alpha": alpha, "reference_batch_key": reference_batch_key}
    asked["features_key"] = features_key if isinstance(features_key, str) else ", ".join(features_key)
    record = {"call": as_plain(options.arguments() | asked), "params": params, "shift": query.plan.shift}
    record["warnings"] = np.array(warned, dtype=str)
    return write(adata, feature_slots(keys, adata, features.names, model, mean, half, record), copy=copy)
