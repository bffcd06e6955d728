"""Labels of a query from its reference, with sets that hold the true label as often as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from anndata import AnnData

from dice import _log
from dice._anndata.store import Prior
from dice._anndata.write import check_writable, plain_params, write
from dice._arguments import choice, number, whole_number
from dice._core.labels.conformal import METHODS
from dice._device import resolve_device
from dice._errors import InputError
from dice._keys import LabelKeys
from dice._query.arguments import result_key
from dice._query.classification import choose, classify
from dice._query.label_slots import label_slots
from dice._query.options import Options
from dice._query.query import Query
from dice._query.reference import as_query, as_reference, read_reference
from dice._query.representation import CLASSIFIERS, REPRESENTATIONS, Represented, candidates
from dice._query.sets import Sets, find_shift, predict_sets


def transfer_labels(
    adata: AnnData,
    reference: AnnData,
    labels_key: str,
    *,
    alpha: float = 0.1,
    method: str = "lac",
    per_class: bool = False,
    weighted: bool = False,
    randomize: bool = True,
    min_probability: float = 0.5,
    classifier: str = "auto",
    representation: str = "auto",
    rho: float = 0.0,
    n_samples: int = 10,
    calibrate: str | bool = "auto",
    batch_key: str | None = None,
    gene_key: str | None = None,
    min_gene_overlap: float = 0.2,
    layer: str | None = None,
    check: bool = True,
    key_added: str | None = None,
    device: str | torch.device = "auto",
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Give every query cell a label, its probability, and a set that holds the true one with probability 1 - alpha.

    Classifiers are trained on the reference's cells, weighed against each other on cells that the network was not
    trained on, and calibrated on cells that nothing has seen; all of them are processed as queries.

    Parameters
    ----------
    adata
        The query: log-normalised expression, as the reference was. Its own labels are never looked at.
    reference
        AnnData object with a prior, labels and calibration cells, as :func:`dice.tl.train_prior` leaves it.
    labels_key
        Column of ``reference.obs`` with the labels; cells without one are not learned from.
    alpha
        Share of cells whose set may miss the true label.
    method
        ``"lac"`` makes the smallest sets; ``"aps"`` spreads its errors more evenly over easy and hard cells;
        ``"raps"`` does so with a penalty for long sets.
    per_class
        Calibrate every label on its own cells: coverage then holds for every label, and whatever the composition of
        the query; sets are larger.
    weighted
        Weigh the calibration cells by how likely they are in the query (a density ratio, estimated on the latents),
        for queries whose states are covered by the reference but in other proportions.
    randomize
        Break the steps of ``"aps"`` and ``"raps"`` by random numbers that belong to the cell, which makes coverage
        exact. Without them coverage is at least what was asked for, and no set is left to chance.
    min_probability
        Cells whose best label is less likely than this are ``"unassigned"``, as are those with an empty set.
    classifier
        ``"knn"`` (15 nearest cells), ``"logistic"`` (multinomial regression), or ``"auto"``: the mixture of all
        candidates that predicts held-out reference cells best.
    representation
        What classifiers look at: ``"projection"`` (PCA), ``"denoised"`` (posterior mean), ``"samples"`` (probabilities
        averaged over posterior samples), ``"genes"`` (standardised expression, logistic only), or ``"auto"`` for all.
    rho
        As in :func:`dice.tl.denoise`, but not ``"auto"``; labels want no more than the measured noise.
    n_samples
        Posterior samples of each cell to average over.
    calibrate
        What to do about a query that stands apart from the reference as a whole, as in :func:`dice.tl.denoise`.
    batch_key
        Column of ``adata.obs`` with batches to calibrate each on its own.
    gene_key
        Column of ``adata.var`` with the gene names.
    min_gene_overlap
        Smallest share of the prior's genes that the query must have.
    layer
        Layer of the query to use instead of ``adata.X``.
    check
        Compare the values of the query with the reference's, as :func:`dice.tl.denoise` does.
    key_added
        Key of the labels, by default ``"<labels_key>_dice"``; other slots derive their name from it.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or any torch device.
    random_state
        Seed: a cell's result depends on it and on the cell's name.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets, for ``labels_key="cell_type"``:

    ``adata.obs["cell_type_dice"]`` categorical
        Labels in the reference's order, and ``"unassigned"``; colours in ``adata.uns["cell_type_dice_colors"]``.
    ``adata.obs["cell_type_dice_prob"]``, ``adata.obs["cell_type_dice_margin"]`` float32
        Probability of the best label, and how far it is above the second.
    ``adata.obs["cell_type_dice_set"]`` categorical
        The set in words: ``"B cell | Plasma cell"``.
    ``adata.obsm["cell_type_dice_prob"]`` DataFrame (n_obs, n_labels) float32
        Probability of every label. Slashes in names of labels become ``"_"``: files cannot hold them.
    ``adata.obsm["cell_type_dice_set"]`` DataFrame (n_obs, n_labels) bool
        Which labels the set holds.
    ``adata.uns["cell_type_dice"]``
        ``call``, ``params`` (what was decided, effective number of calibration cells), ``labels``, ``candidates``
        (weight, log-loss, accuracy and macro-F1 of each on held-out cells), ``calibration`` (as by
        :func:`dice.tl.denoise`) and ``warnings``.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    >>> dice.tl.transfer_labels(query, reference, "cell_type")
    >>> query.obsm["cell_type_dice_prob"].shape
    (400, 2)
    """
    check_writable(adata, copy=copy)
    reference = as_reference(reference)
    if reference is adata:
        raise InputError("adata and reference are the same object, whose labels are known: pass the query as adata.")
    prior, labelled = Prior.from_anndata(reference), read_reference(reference, labels_key)
    key = f"{labels_key}_dice" if key_added is None else key_added
    keys = LabelKeys(result_key(adata, key, "cell_type_dice"))
    alpha = _share("alpha", alpha)
    settings = Sets(alpha, choice("method", method, METHODS), bool(per_class), bool(weighted), bool(randomize))
    min_probability = number("min_probability", min_probability, least=0, most=1)
    seed = whole_number("random_state", random_state, least=0)
    choice("classifier", classifier, ("auto", *CLASSIFIERS))
    choice("representation", representation, ("auto", *REPRESENTATIONS))
    if (classifier, representation) == ("knn", "genes"):
        raise InputError(
            "There are no neighbours by genes: pass representation='projection', or classifier='logistic'."
        )
    options = Options(
        rho=rho, n_samples=whole_number("n_samples", n_samples), uncertainty=False, calibrate=calibrate,
        batch_key=batch_key, gene_key=gene_key,
        min_gene_overlap=min_gene_overlap, layer=layer, check=check, random_state=random_state,
    )  # fmt: skip
    target = resolve_device(device)

    with _log.recorded() as warned:
        query = Query.of(adata, prior, options)
        cells, known = Represented.of(query, target), Represented.of(as_query(reference, prior, query), target)
        shift = find_shift(cells, known, labelled, seed)
        pairs = candidates(classifier, representation, shifted=shift.severe)
        chosen = choose(known, labelled, pairs, seed)
        _log.info(f"Classifier: {chosen.name}.")
        probabilities, calibration = classify(cells, known, labelled, chosen, seed)
        p_values = predict_sets(settings, probabilities, calibration, labelled, shift, cells, known)
    call = plain_params(
        labels_key=labels_key, alpha=alpha, method=method, per_class=per_class, weighted=weighted, randomize=randomize,
        min_probability=min_probability, classifier=classifier, representation=representation,
        rho=rho, n_samples=n_samples, calibrate=options.asked_calibration, batch_key=batch_key, gene_key=gene_key,
        min_gene_overlap=min_gene_overlap, layer=layer, random_state=seed,
    )  # fmt: skip
    params = {"classifier": chosen.name, "n_calibration": len(calibration), **shift.params}
    record: dict[str, Any] = {"call": call, "params": params, "candidates": chosen.table}
    record["calibration"] = cells.calibration
    record["warnings"] = np.array(warned, dtype=str)
    certain = (probabilities.max(1) >= min_probability) & ~cells.cells.empty
    slots = label_slots(keys, adata, labelled, probabilities, p_values > alpha, certain, record)
    return write(adata, slots, copy=copy)


def _share(name: str, value: Any) -> float:
    if not 0 < number(name, value, least=0) < 1:
        raise InputError(f"{name}={value} is not between 0 and 1.")
    return float(value)
