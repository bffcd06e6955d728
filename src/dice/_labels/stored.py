"""The labels of a reference, with their tree: the model that its prior holds, or one that is learned from its cells."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data.checks import read_labels, read_roles
from dice._data.read import names as names_of
from dice._errors import InputError
from dice._keys import PriorKeys
from dice._labels.cells import is_panel
from dice._labels.learn import learn_labels
from dice._labels.model import LabelModel
from dice._labels.ontology import parents_in_ontology
from dice._labels.tree import LabelTree
from dice._model.prior import LearnedPrior
from dice._query.reference import Labelled, check_labelled, labels_of, read_reference
from dice._types import Codes
from dice.options import LabelsKey, Levels

#: Fewest genes of a panel for labels, fewest without a warning, and the F1 from which on genes tell a label.
FEWEST_GENES, FEW_GENES, TOLD = 15, 30, 0.8


def read_or_learn(
    reference: object, prior: Any, labels_key: LabelsKey | None, prior_key: str, seed: int
) -> tuple[LabelModel, list[str] | None]:
    """Return the label model and the colours of labels, from the prior or learned from the reference cells."""
    stored, trained = prior.labels, prior.params.get("labels_key")
    asked = Levels.of(labels_key) if isinstance(labels_key, Levels | list | tuple) else None
    key = asked.key if asked is not None else trained if labels_key is None else str(labels_key)
    if key is None:
        raise InputError(
            "The prior was trained without labels: pass `labels_key`, the column of labels in reference.obs."
        )
    columns = set(names_of(reference, "obs")) if isinstance(reference, AnnData) and reference.n_obs else set()
    lost = stored is not None and key == trained and key not in columns
    if isinstance(reference, AnnData) and PriorKeys(prior_key).split in columns and not lost:
        if asked is None and stored is not None and key == trained and "hierarchy" in stored.card:
            asked = _stored_levels(key, stored.card, columns)
        if asked is None:
            labelled = read_reference(reference, key, prior_key)
        else:
            labelled = check_labelled(labels_in_tree(reference, asked, read_roles(reference, prior_key)), key)
        if stored is None or key != trained or not _same_labels(stored.card, labelled):
            _log.info(f"Learning the labels in reference.obs[{key!r}].")
            stored = learn_labels(reference, prior, labelled, seed)
        elif labelled.tree is not None:
            stored = replace(stored, card={**stored.card, **labelled.tree.to_card()})
        known = None if labelled.colors is None else dict(zip(labelled.names, labelled.colors, strict=True))
        return stored, None if known is None else [known[name] for name in stored.names]
    if stored is None or key != trained:
        raise InputError(
            f"The prior holds {'no labels' if stored is None else f'only the labels {trained!r}'}: pass the reference "
            f"with its cells, or call dice.tl.train_prior(reference, labels_key={key!r}) with calibration cells."
        )
    colors = stored.card.get("colors")
    listed = isinstance(colors, list) and len(colors) == len(stored.names)
    return stored if asked is None else _without_cells(stored, asked), [
        str(color) for color in colors
    ] if listed else None


def _stored_levels(key: str, card: Mapping[str, Any], columns: set[str]) -> Levels:
    """The levels that a prior was trained with, as columns of the reference or as a mapping."""
    coarser = tuple(map(str, card.get("levels", ())))[:-1]
    if coarser and columns.issuperset(coarser):
        return Levels(key, columns=coarser)
    return Levels(key, hierarchy=card.get("hierarchy"))


def _without_cells(stored: LabelModel, asked: Levels) -> LabelModel:
    """The model of a prior with the tree that is asked for."""
    if asked.columns and [*asked.columns, asked.key] != list(stored.card.get("levels", ())):
        raise InputError(f"{list(asked.columns)} are columns of cells: pass the reference, or a hierarchy.")
    if asked.hierarchy is None:
        return stored
    tree = LabelTree.of(stored.names, read_hierarchy(asked.hierarchy, stored.names))
    return replace(stored, card={**stored.card, **tree.to_card()})


def labels_to_learn(reference: AnnData, roles: NDArray[np.int8], levels: LabelsKey | None) -> Labelled | None:
    """Return the labels to learn. Return None, with a warning, if no training or calibration cell has a label."""
    if levels is None:
        return None
    labelled = labels_in_tree(reference, levels, roles.astype(np.intp), "adata")
    for role in ("train", "calibration"):
        if not len(labelled.cells(role)):
            who = f"No cell with a label in adata.obs[{labelled.key!r}] has the role {role!r}"
            advice = "label more cells, or pass training=dice.Training(calibration_fraction=0.1)"
            _log.warn(f"{who}, so the prior will not hold labels: {advice}.")
            return None
    return labelled


def labels_in_tree(reference: AnnData, key: LabelsKey, roles: Codes, who: str = "reference") -> Labelled:
    """Return the labels of a reference. With a tree, cells with a label above others are `coarse`."""
    levels = None if isinstance(key, str) else Levels.of(key)
    if levels is None or (levels.hierarchy is None and not levels.columns):
        return labels_of(reference, str(key) if levels is None else levels.key, roles, who)
    if levels.columns:
        values, parents = _from_columns(reference, levels, who)
    else:
        assert levels.hierarchy is not None
        values = read_labels(reference, levels.key, who)
        parents = read_hierarchy(levels.hierarchy, [str(name) for name in values.categories])
    inner = set(parents.values())
    labelled = labels_of(reference, levels.key, roles, who, values)
    names = [name for name in labelled.names if name not in inner]
    if len(names) < 2:
        raise InputError(f"The tree of {levels.key!r} has fewer than two labels that are not above others: {names}.")
    found = (*levels.columns, levels.key) if levels.columns else ()
    tree = LabelTree.of(names, parents, found, known=[str(name) for name in values.categories])
    nodes = np.array([tree.names.index(name) if name in tree.names else -1 for name in labelled.names] + [-1])
    node = nodes[labelled.codes]
    colors = labelled.colors and [labelled.colors[labelled.names.index(name)] for name in names]
    fine, coarse = np.where(node < len(names), node, -1), np.where(node >= len(names), node, -1)
    return replace(labelled, names=names, codes=fine, tree=tree, coarse=coarse, colors=colors)


def _from_columns(reference: AnnData, levels: Levels, who: str) -> tuple[pd.Categorical, dict[str, str]]:
    """Return the finest known label of every cell, and the parents, from columns that must be nested."""
    keys, columns = (*levels.columns, levels.key), []
    for key in keys:
        labels = read_labels(reference, key, who)
        columns.append(np.append(labels.categories.astype(str).to_numpy(dtype=object), "")[labels.codes])
    _make_unique(keys, columns)
    parents: dict[str, str] = {}
    for (coarse, above), (fine, below) in pairwise(zip(keys, columns, strict=True)):
        for parent, child in sorted(set(zip(above, below, strict=True))):
            if "" not in (parent, child) and parents.setdefault(child, parent) != parent:
                both = f"both {parents[child]!r} and {parent!r}"
                raise InputError(f"{fine!r} is not nested in {coarse!r}: cells of {child!r} are {both}.")
        lone = sorted(set(below) - set(parents) - {""})
        if lone:
            raise InputError(f"No cell of {lone[:5]} has a label in {coarse!r}: fill it in for these cells.")
    finest = pd.DataFrame(dict(enumerate(columns))).replace("", None).ffill(axis=1).iloc[:, -1]
    return pd.Categorical(finest), parents


def _make_unique(keys: Sequence[str], columns: Sequence[NDArray[Any]]) -> None:
    """Add the column to the name of a coarse label if a label below it has the same name, in place."""
    for (coarse, above), (fine, below) in combinations(zip(keys, columns, strict=True), 2):
        for name in sorted((set(above) & set(below)) - {""}):
            other = sorted(set(above[below == name]) - {name, ""})
            if other:
                raise InputError(f"{name!r} is a label in {coarse!r} and, below {other[0]!r}, in {fine!r}: rename it.")
            above[above == name] = f"{name} ({coarse})"


def read_hierarchy(hierarchy: Mapping[str, str] | str | os.PathLike[str], labels: list[str]) -> dict[str, str]:
    """Return the parent of every label and node, from a mapping, a table or an ontology."""
    if isinstance(hierarchy, Mapping):
        return {str(child): str(parent) for child, parent in hierarchy.items()}
    path = os.fspath(hierarchy)
    if path.removesuffix(".gz").endswith(".obo"):
        return parents_in_ontology(path, labels)
    try:
        table = pd.read_csv(path, dtype=str)[["child", "parent"]].dropna().drop_duplicates()
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path!r} must be a .csv file with the columns child and parent: {error}") from error
    twice = table["child"][table["child"].duplicated()].unique().tolist()
    if twice:
        raise InputError(f"{path!r} gives {twice[:5]} several parents each: keep one of them.")
    return dict(zip(table["child"], table["parent"], strict=True))


def _same_labels(card: Mapping[str, Any], labelled: Labelled) -> bool:
    """Return whether the reference still has the labels of its prior. Their order does not matter."""
    counts = np.bincount(labelled.codes[labelled.codes >= 0], minlength=len(labelled.names))
    learned = card.get("label_cells")
    if not isinstance(learned, list) or len(learned) != len(card["labels"]):
        return False
    n_coarse = 0 if labelled.coarse is None else int((labelled.coarse >= 0).sum())
    same = dict(zip(card["labels"], learned, strict=True)) == dict(zip(labelled.names, counts.tolist(), strict=True))
    return same and card.get("coarse_cells", 0) == n_coarse


def warn_of_unlearned(model: LabelModel) -> None:
    """Warn about labels that are never predicted because all of their cells are calibration cells."""
    never = [name for name, n in zip(model.names, model.counts, strict=True) if not n]
    if never:
        _log.warn(f"All cells of the labels {never[:5]} are calibration cells, so these labels are never predicted.")


def check_panel(prior: LearnedPrior, model: LabelModel) -> None:
    """Refuse a panel of very few genes, and warn of few, with the labels that held-out reference cells get."""
    n_genes = len(prior.genes)
    if not is_panel(prior) or n_genes >= FEW_GENES:
        return
    scores = zip(model.names, model.card["f1"], strict=True)
    clear = [name for name, f1 in scores if f1 is not None and f1 >= TOLD]
    told = f"tell {clear[:5]} from the others" if clear else "tell no label from all others"
    text = f"give {model.card['accuracy']:.0%} of held-out reference cells the right label and {told}"
    if n_genes < FEWEST_GENES:
        raise InputError(
            f"Labels need at least {FEWEST_GENES} shared genes, got {n_genes}, which {text}: use a query with more "
            "genes, or call dice.tl.annotate without labels_key for an embedding and clusters."
        )
    _log.warn(f"Only {n_genes} genes are shared, which {text}: expect sets of several labels.")
