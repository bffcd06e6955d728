"""Explain labels by the contributions of genes."""

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._arguments import said, whole_number
from dice._data.checks import read_groups
from dice._data.read import Transferred
from dice._data.store import Reference, find_prior
from dice._errors import InputError
from dice._labels.genes import contrasts, expression_of, find_reasons, known_expression, labelled_query
from dice._labels.slots import vote
from dice._labels.stored import levels_of, model_of
from dice._types import Codes, Floats, Mask
from dice.options import Levels

#: Names that stand for the second most likely label of a group, and for all other labels.
RUNNER_UP, OTHERS = "runner_up", "others"


def label_genes(
    adata: AnnData,
    reference: Reference,
    labels_key: str | None = None,
    *,
    groupby: str | None = None,
    label: str | None = None,
    versus: str | None = None,
    n_genes: int | None = 10,
    key: str | None = None,
    prior_key: str = "dice",
) -> pd.DataFrame:
    """Return the genes that contribute most to a label, in cells with that label or in any group. Nothing is written.

    The score of a label is its logit minus the mean logit of the other labels, averaged over the classifiers. The
    weights of the classifiers are converted to weights of genes. The contribution of a gene is its weight times the
    difference between its mean in the group and its mean in all reference cells.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.transfer_labels`, or a subset of its cells.
    reference
        The reference, prior or path that the labels come from.
    labels_key
        Column of the reference whose labels were transferred. None uses the labels that the prior was trained with.
    groupby
        Column of ``adata.obs`` with groups. None groups cells by their transferred label.
    label
        The label to explain. Without `groupby`, only the cells with this label are used. None explains the label of
        each group; with `groupby`, this is the label with the largest mean probability.
    versus
        Label to compare with. None is the mean of all other labels, and ``"runner_up"`` is the second most likely label
        of each group. Groups whose label is `versus` are left out.
    n_genes
        Number of genes to return per group, by the largest absolute contribution. None returns all genes.
    key
        Key of the transferred labels; None uses ``f"{labels_key}_dice"``.
    prior_key
        Key of the prior in ``uns``.

    Returns
    -------
    One row per group and gene, sorted by absolute contribution, with the columns

    - ``group``, ``label``, ``versus``, ``gene``;
    - ``contribution``: ``weight`` times ``difference``; positive values support the label;
    - ``weight``: increase of the score per standard deviation of the gene in the reference;
    - ``difference``: mean of the group minus the mean of all reference cells, in standard deviations, after removing
      the shift between query and reference;
    - ``mean``, ``fraction``: mean expression of the group in units of the matrix, and the share of its cells that
      express the gene; ``reference_mean``, ``reference_fraction``: the same for reference cells with the label. With a
      prior alone, reference means are computed from standardised genes, and reference fractions are NaN;
    - ``score``: score of the group minus the score of the mean reference cell, and ``remainder``: the part that genes
      do not explain. The contributions of all genes and the remainder add up to the score.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    >>> dice.tl.transfer_labels(query, reference, "cell_type")
    >>> genes = dice.tl.label_genes(query, reference, "cell_type", n_genes=3)
    >>> genes["group"].tolist()
    ['Cluster 1', 'Cluster 1', 'Cluster 1', 'Cluster 2', 'Cluster 2', 'Cluster 2']
    """
    n_genes = None if n_genes is None else whole_number("n_genes", n_genes)
    prior = find_prior(reference, key=prior_key, query=adata)
    key = f"{levels_of(prior, labels_key).key}_dice" if key is None else key
    found = Transferred.of(adata, key.removesuffix("_dice"), key)
    named = str(found.record["call"]["labels_key"])
    model = model_of(reference, prior, Levels(named), prior_key, found)
    groups = read_groups(adata, groupby) if groupby is not None else _by_label(found, label)
    cells = labelled_query(adata, prior, found.record)
    codes = np.where(cells.seen, groups.codes, -1).astype(np.intp)
    n_cells, likely = vote(found.probabilities, codes, len(groups.categories))
    # If all cells of a group have the same label, this is the most likely label of the group.
    labels = likely.argmax(1)
    if groupby is not None and label is not None:
        labels[:] = _position(found.names, "label", label)
    others = _others(found.names, versus, labels, likely, model.counts > 0)
    shown = np.flatnonzero((n_cells > 0) & others.any(1))
    against = contrasts(labels, others)
    weights, difference, score = find_reasons(cells, model, found.record["candidates"], codes, against)
    contributions = weights * difference
    mean, fraction = expression_of(cells.query.matrix, codes, len(labels))
    usual_mean, usual_fraction = known_expression(reference, cells.query, model, named, prior_key)
    best = np.argsort(-np.abs(contributions[shown]), axis=1, kind="stable")[:, :n_genes]
    at, gene = np.repeat(shown, best.shape[1]), best.ravel()
    names, own = np.array(found.names, dtype=object), labels[at]
    return pd.DataFrame({
        "group": np.array(list(map(str, groups.categories)), dtype=object)[at], "label": names[own],
        "versus": OTHERS if versus is None else names[others[at].argmax(1)],
        "gene": prior.genes[cells.query.match.prior].astype(str)[gene], "contribution": contributions[at, gene],
        "weight": weights[at, gene], "difference": difference[at, gene], "mean": mean[at, gene],
        "reference_mean": usual_mean[own, gene], "fraction": fraction[at, gene],
        "reference_fraction": usual_fraction[own, gene], "score": score[at],
        "remainder": (score - contributions.sum(1))[at],
    })  # fmt: skip


def _by_label(found: Transferred, label: str | None) -> pd.Categorical:
    """Return groups of cells with the same transferred label, or only the cells with the given label."""
    given = [name for name in found.names if name in set(found.label)]
    if label is not None and label not in given:
        raise InputError(f"`label` must be one of {given} without `groupby`, got {said(label)}.")
    return pd.Categorical(found.label.astype(object), categories=given if label is None else [label])


def _others(names: list[str], versus: str | None, labels: Codes, probabilities: Floats, learned: Mask) -> Mask:
    """Return a mask (G, C) of the labels to compare with."""
    own = np.eye(len(names), dtype=bool)[labels]
    if versus is None:
        return ~own & learned
    if versus == RUNNER_UP and versus not in names:
        return np.eye(len(names), dtype=bool)[np.where(own, -1, probabilities).argmax(1)]
    rival = np.eye(len(names), dtype=bool)[_position(names, "versus", versus)]
    if len(own) and (own == rival).all(1).all():
        raise InputError(f"`versus` must differ from the explained label, got {said(versus)}.")
    # Groups whose own label is `versus` are left out.
    return rival & ~own


def _position(names: list[str], argument: str, name: str) -> int:
    if name not in names:
        raise InputError(f"`{argument}` must be a label of the reference, one of {names[:20]}, got {said(name)}.")
    return names.index(name)
