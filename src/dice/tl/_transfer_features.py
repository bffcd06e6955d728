"""Features that were measured in a reference, such as proteins, for a query in which they were not."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from anndata import AnnData

from dice import _log
from dice._arguments import share
from dice._data.features import feature_key, read_features, with_cells
from dice._data.store import check_order, find_prior
from dice._data.values import takes_counts
from dice._data.write import as_plain, check_writable, write
from dice._errors import InputError
from dice._features.transfer import N_SAMPLES, feature_slots, predict_features
from dice._keys import FeatureKeys
from dice._query.query import Query
from dice.options import Checks, Options, Shift


@_log.once_per_object
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
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Predict features of every query cell, each with an interval that holds the true value with probability 1 - alpha.

    Features are learned from the reference's cells, seen through the query's genes and at its depth, by ridge
    regression and by neighbours, on the projection and on samples of the posterior. The mixture of these is weighed for
    each feature on cells that were held out. Their errors also tell how wide intervals have to be, in units of a spread
    that is learned: narrow where similar cells agree and where the posterior is sure.

    Parameters
    ----------
    adata
        The query: log-normalised expression, as the reference was. Its own features are never looked at.
    reference
        AnnData object with features and a prior, as :func:`dice.tl.train_prior` leaves it, or the path of one; or a
        MuData object, one modality of which has the prior.
    features_key
        Numeric features of the reference: a key of ``obsm`` (an array, whose names are in ``uns["<key>_names"]``, or a
        DataFrame), a column of ``obs`` or a list of such, ``"layer:NAME"`` for the genes of a layer, ``"mod:NAME"`` for
        a modality of a MuData object. NaN is 'not measured': a feature is learned from the cells that have it.
        Proteins are best normalised first (:func:`dice.pp.clr`).
    alpha
        Share of cells whose interval may miss the true value.
    reference_batch_key
        Column of ``reference.obs`` with batches: they are then held out as a whole, so that intervals allow for what
        differs from batch to batch. Without it, intervals are widened by a fixed factor where the query differs.
    shift
        Which difference between query and reference to remove, as in :func:`dice.tl.denoise`. ``"auto"`` removes an
        offset of each soft cluster.
    layer, gene_key, check, prior_key
        As in :func:`dice.tl.denoise`.
    key_added
        Key of the predictions, by default ``"<features_key>_dice"``; other slots derive their name from it.
    random_state
        Seed: a cell's result depends on it and on the cell's name.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets, for ``features_key="protein"``:

    ``adata.obsm["protein_dice"]`` DataFrame (n_obs, n_features) float32
        Predicted features. Slashes in their names become ``"_"``: files cannot hold them.
    ``adata.obsm["protein_dice_low"]``, ``adata.obsm["protein_dice_high"]`` DataFrame (n_obs, n_features) float32
        The interval.
    ``adata.uns["protein_dice"]``
        ``call``, ``params`` (how many cells were learned from, how well query and reference are told apart, by how much
        intervals were widened), ``features`` (for each the ``name``, the ``correlation`` with what was measured in
        held-out cells, the mean ``width`` of the intervals in the query, ``held_out_width`` and ``marginal_width``,
        those of held-out cells with and without a prediction, ``n_cells`` with a value, and ``useless``: True where the
        interval is as wide as without any prediction, so that the feature must not be read), ``candidates`` (their
        ``weight``, and that for each feature), ``shift`` (as by :func:`dice.tl.denoise`) and ``warnings``.

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
    check_writable(adata, copy=copy)
    check_order(adata, reference, prior_key)
    cells = with_cells(reference, prior_key)
    if cells is adata:
        raise InputError("adata and reference are the same object, whose features are known: pass the query as adata.")
    prior, alpha = find_prior(cells, key=prior_key), share("alpha", alpha)
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
        found = predict_features(query, cells, features, reference_batch_key, alpha, prior_key)
    asked = {
        "features_key": features_key if isinstance(features_key, str) else ", ".join(features_key),
        "alpha": alpha,
        "reference_batch_key": reference_batch_key,
    }
    record = {
        "call": as_plain(options.arguments() | asked),
        "params": found.params,
        "shift": query.decided.shift,
        "warnings": np.array(warned, dtype=str),
    }
    return write(adata, feature_slots(keys, adata, features.names, found, record), copy=copy)
