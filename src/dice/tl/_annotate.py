"""Denoise, cluster and label a query in one call."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from anndata import AnnData

from dice import _log
from dice._arguments import as_plain, new_key, seed, share, whole_number
from dice._data import read
from dice._data.checks import read_batches, read_labels
from dice._data.files import files_of
from dice._data.genes import genes_in_both
from dice._data.graph import write_umap
from dice._data.store import Prior, Reference, find_prior
from dice._data.values import comparable_layers, layer_like
from dice._data.write import Slots, all_or_nothing, check_writable, prior_slot, without_earlier, write
from dice._errors import InputError
from dice._files import check_target
from dice._keys import AnnotateKeys, DenoiseKeys, LabelKeys, PriorKeys
from dice._labels.several import by_each
from dice._labels.slots import agreed_status, label_keys
from dice._labels.stored import check_labelled, labels_in_tree
from dice._labels.summary import summarize
from dice._model.training_data import assign_roles
from dice._query.query import one_reading
from dice._train.cells import choose_genes, fitting_prior, look_ahead
from dice._train.train import check_settings
from dice._types import Seed
from dice.options import FOR_LABELS, Checks, LabelsKey, Levels, Options, Shift, Training
from dice.tl._cluster import cluster
from dice.tl._denoise import denoise
from dice.tl._novelty import novelty
from dice.tl._train_prior import train_prior
from dice.tl._transfer_labels import LabelShift, transfer_labels

#: Number of neighbours in the graphs of :func:`dice.tl.cluster`. Smaller queries are not clustered.
N_NEIGHBORS = 15


def annotate(
    adata: AnnData,
    reference: Reference,
    labels_key: LabelsKey | None = None,
    *,
    alpha: float = 0.1,
    n_top_genes: int = 3000,
    reference_batch_key: str | None = "auto",
    shift: LabelShift = "auto",
    layer: str | None = None,
    gene_key: str | None = None,
    check: bool | Checks = True,
    training: Training = Training(),
    report: str | os.PathLike[str] | None = None,
    prior_key: str = "dice",
    random_state: Seed = 0,
    copy: bool = False,
) -> AnnData | None:
    """Denoise, cluster and label a query with a reference in one call.

    This function chooses genes and trains a prior, unless the reference has a suitable one. It then calls
    :func:`denoise`, :func:`cluster` and, with labels, :func:`transfer_labels` and :func:`novelty`. Results are written
    at the end; if a step fails, both objects are unchanged. A summary of ten lines is printed and stored.

    Parameters
    ----------
    adata
        The query: log-normalised expression, or raw counts. The query keeps all genes.
    reference
        An AnnData object with log-normalised expression or raw counts, or the path or name of a prior. It can also be
        a :class:`dice.Prior`, or a list of references (:doc:`/priors`). A prior in an AnnData object is used if the
        query has 80 % of the prior's genes.
    labels_key
        Column of ``reference.obs`` with labels, or columns from coarse to fine. A :class:`dice.Levels` adds a
        hierarchy.
    alpha
        Share of cells whose prediction set may miss the true label, and of confident cells whose label may be wrong.
    n_top_genes
        Number of genes to learn from: the most variable genes of the reference that the query also has.
    reference_batch_key
        Column of ``reference.obs`` with technologies or batches. Variable genes are ranked within each of them.
        ``"auto"`` looks for such a column by its name and uses it if the reference mixes technologies. None ranks genes
        over all cells.
    shift
        As in :func:`transfer_labels`. Only ``"offset"``, ``"clusters"`` and ``"mean"`` also move the embedding.
    layer
        Layer of both objects to use instead of ``X``.
    gene_key
        Column of ``adata.var`` with gene names of the same kind as in the reference, instead of ``adata.var_names``.
    check
        As in :func:`denoise`. With False, or ``dice.Checks(values=False)``, raw counts are not normalised.
    training
        Settings of the training (:class:`dice.Training`).
    report
        File for a report of this call, for example ``"report.html"``. :func:`dice.pl.report` also shows earlier calls.
    prior_key
        Key of the prior in the reference.
    random_state
        Seed. A NumPy generator draws a seed, and None uses a new seed each time.
    copy
        Return a copy of the query instead of writing to it. A new prior is stored in the reference in any case.

    Returns
    -------
    None, or the copy. Sets the results of :func:`denoise`, :func:`cluster`, :func:`transfer_labels` and :func:`novelty`
    (with ``groupby="auto"``) in `adata`, the results of :func:`train_prior` in `reference` if it was called, and:

    ``adata.obsm["X_umap"]``, ``adata.obsm["X_dice_umap"]`` (n_obs, 2) float32
        UMAP of the denoised cells, for :func:`scanpy.pl.umap`. An existing ``X_umap`` is not overwritten.
    ``adata.uns["dice_annotate"]``
        ``summary`` (ten lines of text), ``params`` (the numbers in the summary), ``call`` and ``warnings``.
    ``reference.var["dice_genes"]`` bool
        The chosen genes: ``train_prior(reference, mask_var="dice_genes")`` uses the same genes.
    ``adata.layers["dice_lognorm"]``, ``reference.layers["dice_lognorm"]``
        Log-normalised values if ``X`` holds raw counts. ``X`` is not changed. Other functions of dice find this layer.

    Examples
    --------
    >>> import anndata, dice, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> profiles, types = 3 * rng.gamma(0.3, size=(4, 300)), np.arange(700) % 4
    >>> cells = anndata.AnnData(rng.poisson(profiles[types]).astype("float32"))
    >>> cells.obs["cell_type"] = np.array(["B", "T", "NK", "DC"])[types]
    >>> reference, query = cells[:500].copy(), cells[500:].copy()
    >>> dice.tl.annotate(query, reference, "cell_type", training=dice.Training(max_steps=20, calibration_fraction=0.3))
    >>> query.obs[["dice_cluster", "cell_type_dice", "cell_type_dice_status", "dice_novel"]].shape
    (200, 4)
    """
    if isinstance(reference, list | tuple):
        return by_each(annotate, **locals())
    check_writable(adata, copy=copy, reference=reference)
    prior_key, alpha = new_key("prior_key", prior_key, "dice"), share("alpha", alpha)
    n_top_genes = whole_number("n_top_genes", n_top_genes, least=2)
    options = Options(shift=shift, layer=layer, gene_key=gene_key, check=check, random_state=seed(random_state))
    levels = Levels.of(labels_key)
    inputs = () if report is None else files_of(adata, reference, levels and levels.hierarchy)
    path = None if report is None else check_target(report, inputs=inputs)
    call: dict[str, Any] = {
        "labels_key": levels and levels.key, "n_top_genes": n_top_genes, "reference_batch_key": reference_batch_key,
        "shift": "given" if isinstance(shift, Mapping) else shift, "layer": layer, "gene_key": gene_key,
        "check": options.check, "prior_key": prior_key, "alpha": alpha, "random_state": options.random_state,
    }  # fmt: skip
    if isinstance(reference, AnnData):
        _check(adata, reference, call, training)
    else:
        reference = find_prior(reference, key=prior_key)
    _log.say_cost("annotate", adata.n_obs)
    target = adata.copy() if copy else adata
    with (
        _log.recorded() as warned,
        one_reading(),
        all_or_nothing(target, *([reference] if isinstance(reference, AnnData) else [])) as before,
        _log.progress(total=100, desc="Annotating: the prior", unit="%") as bar,
    ):
        prior, genes = fitting_prior(target, reference, prior_key, options), ""
        if prior is None:
            prior, genes, options = _learn(target, reference, levels, call, training, options)
        elif options.check.values:
            options = replace(options, layer=layer_like(target, layer, prior, gene_key))
        _log.next_stage(bar, 42, "Annotating: denoising")
        text, figures = _run_steps(target, reference, prior, levels, call, options, genes, bar)
        record = as_plain({"summary": text, "params": figures, "call": call})
        write(target, Slots(uns={AnnotateKeys().uns: record | {"warnings": np.array(warned, dtype=str)}}), copy=False)
        if path is not None:
            from dice.pl._report import report as write_report  # not at the top: only reports need matplotlib

            write_report(without_earlier(target, before[0]), path, reference=reference, prior_key=prior_key)
    _log.say(text, result=True)
    return target if copy else None


def _check(query: AnnData, reference: AnnData, call: Mapping[str, Any], training: Training) -> None:
    """Check the reference and the arguments before the work starts."""
    check_writable(reference, copy=False, who="reference")
    prior_slot(reference, call["prior_key"], argument="prior_key", who="reference")
    check_settings("default", training, "auto", call["labels_key"])
    if call["labels_key"] is not None:
        read_labels(reference, call["labels_key"], "reference")
        label_keys(query, call["labels_key"])
    if call["reference_batch_key"] not in (None, "auto"):
        read_batches(reference, str(call["reference_batch_key"]), "reference")


def _learn(
    query: AnnData, reference: Reference, levels: Levels | None, call: Mapping[str, Any], training: Training,
    options: Options,
) -> tuple[Prior, str, Options]:  # fmt: skip
    """Choose genes, check inputs, train. Return the prior, a text about its genes, and the options of the query."""
    assert isinstance(reference, AnnData)  # every other reference is a prior
    layer, key = options.layer, call["prior_key"]
    if isinstance(options.shift, Mapping) and options.shift.get("strategy") != "none":
        raise InputError("`shift` has offsets of another prior: pass that prior as `reference`, or pass shift='auto'.")
    shared, labels = genes_in_both(query, reference, options), None
    if options.check.values:
        own, layer = comparable_layers(query, reference, shared, options)
        options = replace(options, layer=own)
    if levels is not None:
        labels = np.asarray(read_labels(reference, levels.key, "reference").codes)
        shares = training.validation_fraction, training.calibration_fraction
        roles = assign_roles(reference.n_obs, *shares, options.random_state)
        check_labelled(labels_in_tree(reference, levels, roles.astype(np.intp)))
    batches, n_top = call["reference_batch_key"], call["n_top_genes"]
    mask, chosen = choose_genes(reference, shared, n_top_genes=n_top, batch_key=batches, layer=layer, labels=labels)
    look_ahead(query, reference, mask, options, layer)
    write(reference, Slots(var={PriorKeys(key).genes: mask}), copy=False)
    train_prior(
        reference, labels_key=levels, layer=layer, mask_var=PriorKeys(key).genes, training=training,
        check=options.check.values, key_added=key, random_state=options.random_state,
    )  # fmt: skip
    described = f"{chosen} (the reference has {reference.n_vars:,}, the query {query.n_vars:,})"
    return find_prior(reference, key=key), described, options


@_log.within(_log.within_call, True)
def _run_steps(
    query: AnnData, source: Reference, prior: Prior, levels: Levels | None,
    call: Mapping[str, Any], options: Options, genes: str, bar: Any,
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Run all steps on a query and return the summary, as text and as numbers."""
    prior_key, seeded = call["prior_key"], dict[str, Any](random_state=options.random_state)
    reading = dict[str, Any](layer=options.layer, check=options.check, gene_key=options.gene_key, prior_key=prior_key)
    # Strategies for labels do not move the embedding.
    moves = not isinstance(options.shift, Shift) or options.shift.strategy not in FOR_LABELS
    denoise(query, source, shift=moves and options.shift, **seeded, **reading)
    _log.next_stage(bar, 4, "Annotating: clusters")
    empty = DenoiseKeys().empty
    n_cells = query.n_obs - (int(read.column(query, empty).sum()) if empty in read.names(query, "obs") else 0)
    if clustered := n_cells > N_NEIGHBORS:
        cluster(query, source, prior_key=prior_key, **seeded)
    else:
        _log.warn(f"{n_cells} cells with expression are too few for clusters, so clusters are left out.")
    write_umap(query, DenoiseKeys().mean)
    _log.next_stage(bar, 22, "Annotating: labels")
    labels_key = prior.params.get("labels_key") if levels is None else levels.key
    if labels_key is not None:
        chosen = {"alpha": call["alpha"], "groupby": "auto", "shift": options.shift}
        transfer_labels(query, source, levels or labels_key, **chosen, **seeded, **reading)
        _log.next_stage(bar, 7, "Annotating: novelty")
        novelty(query, source, groupby="auto", labels_key=labels_key, **reading)
        write(query, agreed_status(query, LabelKeys(f"{labels_key}_dice")), copy=False)
    _log.next_stage(bar, 2 if labels_key else 9, "Annotating: the report")
    layer = options.layer
    return summarize(query, source, prior, layer=layer, genes=genes, labels_key=labels_key, clustered=clustered)
