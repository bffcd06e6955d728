"""Why cells have their label: the genes that carry the decision."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dice._arguments import said, whole_number
from dice._data import read
from dice._data.checks import read_groups
from dice._data.results import Transferred
from dice._data.store import check_order, find_prior
from dice._errors import InputError
from dice._keys import LabelKeys
from dice._labels.genes import blend_of, contrasts, expression_of, find_reasons, known_expression, labelled_query
from dice._labels.learn import read_or_learn
from dice._labels.votes import vote

if TYPE_CHECKING:
    from anndata import AnnData

    from dice._data.store import Prior
    from dice._types import Codes, Floats, Mask

#: What stands for the second most likely label of a group, and for all others.
RUNNER_UP, OTHERS = "runner_up", "others"
GENE_COLUMNS = (
    "group", "label", "versus", "gene", "contribution", "weight", "difference", "mean", "reference_mean", "fraction",
    "reference_fraction", "score", "remainder",
)  # fmt: skip


def label_genes(
    adata: AnnData,
    reference: AnnData | Prior | str | os.PathLike[str],
    labels_key: str | None = None,
    *,
    groupby: str | None = None,
    label: str | None = None,
    versus: str | None = None,
    n_genes: int | None = 10,
    key: str | None = None,
    prior_key: str = "dice",
) -> pd.DataFrame:
    """Tell which genes carry the decision for a label, in cells of that label or in any group; writes nothing.

    The decision is a score: the label's logit less the mean logit of others, averaged over the classifiers by their
    weights in the mixture. The weights of classifiers are carried back to genes, and a gene contributes its weight
    times the difference between the group's mean and the mean of all reference cells.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.transfer_labels`; a part of its cells will do.
    reference
        The reference, prior or path that gave the labels.
    labels_key
        The column of the reference whose labels were transferred; None takes those that the prior was trained with.
    groupby
        Column of ``adata.obs`` with clusters; None groups cells by the label that they were given.
    label
        The label to explain. None takes the label of each group: with `groupby` that with the largest mean
        probability. Without `groupby`, a name leaves the cells of that label alone.
    versus
        What the label is compared with: None is the mean of all other labels, ``"runner_up"`` the second most likely
        label of each group, and a name that label, which leaves its own cells out.
    n_genes
        Genes of each group, those with the largest contributions of either sign; None gives all.
    key
        Key of the transferred labels; None is ``f"{labels_key}_dice"``.
    prior_key
        Key of the prior in ``uns``.

    Returns
    -------
    One row per group and gene, the largest contributions of either sign first, with the columns

    - ``group``, ``label``, ``versus``, ``gene``;
    - ``contribution``: ``weight`` times ``difference``; positive for the label, negative for others;
    - ``weight``: by how much the score rises with the gene, per standard deviation in the reference;
    - ``difference``: mean of the group less that of all reference cells, in standard deviations, after the shift
      between query and reference was taken away;
    - ``mean``, ``fraction``: mean expression of the group as it is in the matrix, and the share of its cells that
      express the gene; ``reference_mean``, ``reference_fraction``: the same of the reference's cells with that label.
      A prior alone keeps means only as far as latents and classifiers see them, and no fractions;
    - ``score``: how far the group's score is above that of the mean reference cell, and ``remainder``: what of that no
      gene accounts for. The contributions of all genes and the remainder add up to the score.

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
    check_order(adata, reference, prior_key)
    n_genes = None if n_genes is None else whole_number("n_genes", n_genes)
    prior = find_prior(reference, key=prior_key)
    named = prior.params.get("labels_key") if labels_key is None else labels_key
    if named is None and key is None:
        raise InputError("The prior was trained without labels: name those that were transferred with labels_key=.")
    key = f"{named}_dice" if key is None else key
    found, record = Transferred.of(adata, str(named), key), read.record(adata, LabelKeys(key).uns)
    named = str(record["call"].get("labels_key", named))
    seed = int(record["call"].get("random_state", 0))
    model, _ = read_or_learn(reference, prior, named, prior_key, seed)
    if model.names != found.names:
        raise InputError(
            f"adata.uns[{key!r}] has other labels than the reference: pass the reference that gave them, or call "
            "dice.tl.transfer_labels again."
        )
    groups = read_groups(adata, groupby) if groupby is not None else _by_label(found, label)
    cells = labelled_query(adata, prior, record)
    codes = np.where(cells.cells.seen, groups.codes, -1).astype(np.intp)
    votes = vote(found.probabilities, codes, len(groups.categories), found.alpha)
    labels = _labels(groups, found.names, votes.probabilities, groupby, label)
    others = _others(found.names, versus, labels, votes.probabilities, model.counts > 0)
    shown = np.flatnonzero((votes.n_cells > 0) & others.any(1))
    if not len(shown):
        return pd.DataFrame(columns=list(GENE_COLUMNS))
    reasons = find_reasons(cells, model, blend_of(record), codes, contrasts(labels, others))
    own = expression_of(cells.query.matrix, codes, len(labels))
    usual = known_expression(reference, cells.query, model, named, prior_key)
    by_gene = (
        prior.genes[cells.query.match.prior].astype(str)[None].repeat(len(labels), 0),
        reasons.contributions, reasons.weights, reasons.difference,
        own.mean, usual.mean[labels], own.fraction, usual.fraction[labels],
    )  # fmt: skip
    parts = []
    for at in shown:
        rival = OTHERS if versus is None else found.names[int(others[at].argmax())]
        values = [str(groups.categories[at]), found.names[labels[at]], rival]
        best = np.argsort(-np.abs(reasons.contributions[at]), kind="stable")[:n_genes]
        values += [each[at][best] for each in by_gene]
        values += [reasons.score[at], reasons.remainder[at]]
        parts.append(pd.DataFrame(dict(zip(GENE_COLUMNS, values, strict=True))))
    return pd.concat(parts, ignore_index=True)


def _by_label(found: Transferred, label: str | None) -> pd.Categorical:
    """Groups of cells that were given the same label, of those that there are; or those of one label alone."""
    given = [name for name in found.names if name in set(found.label)]
    if label is not None and label not in given:
        raise InputError(f"No cell was given the label {said(label)}: choose one of {given}, or pass groupby=.")
    return pd.Categorical(found.label.astype(object), categories=given if label is None else [label])


def _labels(
    groups: pd.Categorical, names: list[str], probabilities: Floats, groupby: str | None, label: str | None
) -> Codes:
    """The label (G,) that is explained in every group."""
    if groupby is None:
        return np.array([names.index(name) for name in groups.categories], dtype=np.intp)
    if label is None:
        return probabilities.argmax(1).astype(np.intp)
    return np.full(len(probabilities), _position(names, "label", label), dtype=np.intp)


def _others(names: list[str], versus: str | None, labels: Codes, probabilities: Floats, learned: Mask) -> Mask:
    """The labels (G, C) that those of the groups are compared with."""
    own = np.eye(len(names), dtype=bool)[labels]
    if versus is None:
        return ~own & learned
    if versus == RUNNER_UP and versus not in names:
        return np.eye(len(names), dtype=bool)[np.where(own, -1, probabilities).argmax(1)]
    rival = np.eye(len(names), dtype=bool)[_position(names, "versus", versus)]
    if len(own) and (own == rival).all(1).all():
        raise InputError(f"versus={said(versus)} is the label that is explained: choose another one, or None.")
    # Groups that are called so themselves are left out.
    return rival & ~own


def _position(names: list[str], argument: str, name: str) -> int:
    if name not in names:
        raise InputError(f"`{argument}` must be a label of the reference, one of {names[:20]}, got {said(name)}.")
    return names.index(name)
