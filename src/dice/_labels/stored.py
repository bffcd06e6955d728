"""The label model of a reference, from its prior or learned from its cells, and the tree of its labels."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import StringIO
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data.checks import has_cells, read_labels, read_roles
from dice._data.files import content_of
from dice._data.read import Transferred, stored_colors
from dice._data.read import names as names_of
from dice._errors import InputError
from dice._labels.learn import learn_labels
from dice._labels.model import Labelled, LabelModel
from dice._labels.tree import LabelTree
from dice._types import Codes
from dice.options import LabelsKey, Levels

#: Minimum number of genes of a panel, minimum number without a warning, and F1 from which a label counts as told apart.
FEWEST_GENES, FEW_GENES, TOLD_APART = 15, 30, 0.8


def levels_of(prior: Any, labels_key: LabelsKey | None) -> Levels:
    """Return the levels of labels for a `labels_key`. None means the labels that the prior was trained with."""
    levels = Levels.of(prior.params.get("labels_key") if labels_key is None else labels_key)
    if levels is None:
        raise InputError("The prior was trained without labels: pass `labels_key`, a column of reference.obs.")
    return levels


def model_of(reference: object, prior: Any, levels: Levels, prior_key: str, found: Transferred) -> LabelModel:
    """Return the label model that gave the transferred labels of a query, with the tree of these `levels`."""
    if levels.hierarchy is not None:
        # Refuse a hierarchy of other labels before labels are learned.
        LabelTree.of(found.names, read_hierarchy(levels.hierarchy, found.names))
    model = read_or_learn(reference, prior, levels, prior_key, int(found.record["call"].get("random_state", 0)))
    if model.names != found.names:
        raise InputError("The query's labels are from another reference or tree: call dice.tl.transfer_labels again.")
    return model


def read_or_learn(reference: object, prior: Any, levels: Levels, prior_key: str, seed: int) -> LabelModel:
    """Return the label model, from the prior or learned from the reference cells, with its tree and colours."""
    stored = prior.labels if levels.key == prior.params.get("labels_key") else None
    if not has_cells(reference, prior_key) or (stored is not None and levels.key not in names_of(reference, "obs")):
        return _without_cells(prior, levels)
    if stored is not None and "hierarchy" in stored.card and levels.flat:
        coarser = tuple(map(str, stored.card.get("levels", ())))[:-1]
        known = coarser and set(coarser) <= set(names_of(reference, "obs"))
        levels = Levels(levels.key, None if known else stored.card["hierarchy"], coarser if known else ())
    labelled = check_labelled(labels_in_tree(reference, levels, read_roles(reference, prior_key)))
    if stored is not None and stored.card.get("checksum") == labelled.checksum:
        colors = dict(zip(labelled.names, labelled.colors or (), strict=False))
        tree = {} if labelled.tree is None else labelled.tree.to_card()
        return replace(stored, card=stored.card | tree | {"colors": [colors[name] for name in stored.names if colors]})
    _log.info(f"Learning the labels in reference.obs[{levels.key!r}].")
    return learn_labels(reference, prior, labelled, seed)


def check_model(model: LabelModel, prior: Any) -> None:
    """Warn about labels that are never predicted and about panels of few genes. Refuse panels of very few genes."""
    never = [name for name, n in zip(model.names, model.counts, strict=True) if not n]
    if never:
        _log.warn(f"All cells of the labels {never[:5]} are calibration cells, so these labels are never predicted.")
    n_genes = len(prior.genes)
    if not prior.is_panel or n_genes >= FEW_GENES:
        return
    clear = [name for name, f1 in zip(model.names, model.card["f1"], strict=True) if (f1 or 0.0) >= TOLD_APART]
    told = f"tell {clear[:5]} from the others" if clear else "tell no label from all others"
    text = f"give {model.card['accuracy']:.0%} of held-out reference cells the right label and {told}"
    if n_genes < FEWEST_GENES:
        raise InputError(
            f"Labels need at least {FEWEST_GENES} shared genes, got {n_genes}, which {text}: pass a query with more "
            "genes, or call dice.tl.annotate without labels_key for an embedding and clusters."
        )
    _log.warn(f"Only {n_genes} genes are shared, which {text}: expect sets of several labels.")


def _without_cells(prior: Any, levels: Levels) -> LabelModel:
    """Return the label model of a prior, with the tree of `levels`."""
    model, trained = prior.labels, prior.params.get("labels_key")
    if model is None or levels.key != trained:
        raise InputError(
            f"The prior holds {'no labels' if model is None else f'only the labels {trained!r}'}: pass the reference "
            f"with its cells, or call dice.tl.train_prior(reference, labels_key={levels.key!r}) with calibration cells."
        )
    if levels.columns and [*levels.columns, levels.key] != list(model.card.get("levels", ())):
        raise InputError(f"{list(levels.columns)} are columns of reference.obs: pass the reference, or a hierarchy.")
    if levels.hierarchy is None:
        return model
    tree = LabelTree.of(model.names, read_hierarchy(levels.hierarchy, model.names))
    return replace(model, card=model.card | tree.to_card())


def labels_to_learn(reference: AnnData, roles: NDArray[np.int8], labels_key: LabelsKey | None) -> Labelled | None:
    """Return the labels to learn. Return None, with a warning, if no training or calibration cell has a label."""
    if (levels := Levels.of(labels_key)) is None:
        return None
    labelled = labels_in_tree(reference, levels, roles.astype(np.intp), "adata")
    try:
        return check_labelled(labelled)
    except InputError as error:
        _log.warn(f"The prior will hold no labels. {error}")
        return None


def labels_in_tree(reference: AnnData, levels: Levels, roles: Codes, who: str = "reference") -> Labelled:
    """Return labels, roles, colours and tree of reference cells. Labels with one cell are left out."""
    if levels.columns:
        values, parents = _from_columns(reference, levels, who)
    else:
        values, given = read_labels(reference, levels.key, who), levels.hierarchy
        parents = {} if given is None else read_hierarchy(given, [str(name) for name in values.categories])
    alone = np.bincount(values.codes[values.codes >= 0], minlength=len(values.categories)) == 1
    labels, single = values.set_categories(values.categories[~alone]), values.categories[alone].astype(str).tolist()
    if single:
        some = f"{len(single)}, for example {single[:5]}"
        _log.warn(f"Labels with only one cell are left out ({some}): merge them with other labels.")
    if len(labels.categories) < 2:
        raise InputError(
            f"{who}.obs[{levels.key!r}] must hold two labels or more, each with two cells or more: pass another column."
        )
    known, codes = stored_colors(reference, levels.key) or {}, labels.codes.astype(np.intp)
    colors = [known[name] for name in labels.categories] if set(labels.categories) <= set(known) else None
    names = [str(name) for name in labels.categories]
    cells = reference.obs_names
    if levels.flat:
        return Labelled(levels.key, codes, names, roles, colors, _checksum(cells, codes, names))
    finest = [name for name in names if name not in set(parents.values())]
    if len(finest) < 2:
        raise InputError(f"The tree of {levels.key!r} must have at least two labels without children, got {finest}.")
    found = (*levels.columns, levels.key) if levels.columns else ()
    tree = LabelTree.of(finest, parents, found, known=[str(name) for name in values.categories])
    nodes = np.append(pd.Index(tree.names).get_indexer(names), -1)[codes]
    colors = colors and [colors[names.index(name)] for name in finest]
    return Labelled(levels.key, nodes, finest, roles, colors, _checksum(cells, nodes, tree.names), tree)


def _checksum(cells: pd.Index, nodes: Codes, names: Sequence[str]) -> str:
    """Return a checksum of the names and labels of all labelled cells. The order of cells does not matter."""
    labelled = nodes >= 0
    labels = np.array(names, dtype=object)[nodes[labelled]]
    hashes = pd.util.hash_array((cells[labelled].astype(str) + "\0" + labels).to_numpy(dtype=object))
    return f"{hashes.sum(dtype=np.uint64):016x}"


def check_labelled(labelled: Labelled) -> Labelled:
    """Return labels that have training and calibration cells, or raise an error that says what is missing."""
    problems = {
        "train": "No training cell of the reference has a label in {}: label some, or train its prior again.",
        "calibration": "No calibration cell of the reference has a label in {}: train its prior with "
        "training=dice.Training(calibration_fraction=0.1).",
    }
    for role, problem in problems.items():
        if not len(labelled.cells(role)):
            raise InputError(problem.format(f"obs[{labelled.key!r}]"))
    return labelled


def _from_columns(reference: AnnData, levels: Levels, who: str) -> tuple[pd.Categorical, dict[str, str]]:
    """Return the finest known label of every cell, and the parent of every label. The columns must be nested."""
    keys = (*levels.columns, levels.key)
    labels = {key: pd.Series(read_labels(reference, key, who).rename_categories(str), dtype=object) for key in keys}
    for coarse, fine in combinations(keys, 2):
        # If a coarse label has the same name as a finer label, add the column to its name.
        twice = labels[coarse].isin(labels[fine].dropna())
        labels[coarse] = labels[coarse].mask(twice, labels[coarse] + f" ({coarse})")
    table = pd.DataFrame(labels)
    parents: dict[str, str] = {}
    for coarse, fine in pairwise(keys):
        pairs = table[[coarse, fine]].dropna().drop_duplicates().sort_values([fine, coarse])
        several = pairs[pairs[fine].duplicated(keep=False)]
        if len(several):
            (one, child), (other, _) = several.to_numpy()[:2]
            raise InputError(
                f"{fine!r} is not nested in {coarse!r}: cells of {child!r} are both {one!r} and {other!r}."
            )
        lone = sorted(set(table[fine].dropna()) - set(pairs[fine]))
        if lone:
            raise InputError(f"The labels {lone[:5]} have no parent in {coarse!r}: fill in this column.")
        parents |= dict(zip(pairs[fine], pairs[coarse], strict=True))
    return pd.Categorical(table.ffill(axis=1)[levels.key]), parents


def read_hierarchy(hierarchy: Mapping[str, str] | str | os.PathLike[str], labels: list[str]) -> dict[str, str]:
    """Return the parent of every label and node, from a mapping, a table or an ontology."""
    if isinstance(hierarchy, Mapping):
        return {str(child): str(parent) for child, parent in hierarchy.items()}
    path = os.fspath(hierarchy)
    text = StringIO(content_of(path))
    if path.removesuffix(".gz").endswith(".obo"):
        return _parents_in_ontology(path, text, labels)
    try:
        table = pd.read_csv(text, dtype=str)[["child", "parent"]].dropna().drop_duplicates()
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path!r} must be a .csv file with the columns child and parent: {error}") from error
    twice = table["child"][table["child"].duplicated()].unique().tolist()
    if twice:
        raise InputError(f"{path!r} has several parents for {twice[:5]}: keep one parent for each.")
    return dict(zip(table["child"], table["parent"], strict=True))


def _parents_in_ontology(path: str, text: StringIO, labels: list[str]) -> dict[str, str]:
    """Return the parent of every label and node, from an .obo file. Labels are ids or exact names of its terms.

    In a tree, a term has only one parent. Terms are therefore added from specific to general (few labels first, then
    many ancestors). A term is added only if its labels are nested in, contain or do not overlap those of earlier terms.
    """
    try:
        import networkx as nx  # obonet needs it as well
        import obonet
    except ImportError as error:
        raise ImportError('An .obo file needs the package obonet: pip install "scdice[ontology]".') from error
    try:
        found = obonet.read_obo(text)
    except (OSError, ValueError) as error:
        raise InputError(f"{path!r} must be an ontology in the .obo format: {error}") from error
    graph = nx.DiGraph((child, parent) for child, parent, kind in found.edges(keys=True) if kind == "is_a")
    graph.add_nodes_from(found.nodes(data=True))
    by_name = {data["name"]: term for term, data in graph.nodes(data=True) if "name" in data}
    own = {label if label in graph else by_name.get(label, label): label for label in labels}
    unknown = sorted(label for term, label in own.items() if term not in graph)
    if unknown:
        raise InputError(f"{path!r} has no terms with the ids or names {unknown[:5]}: rename these labels.")
    held: dict[str, set[str]] = {}
    for term, label in own.items():
        for above in (term, *nx.descendants(graph, term)):
            held.setdefault(above, set()).add(label)
    # Terms that are labels of cells come first, to become parents of the labels below them, not labels beside them.
    order = sorted(held, key=lambda t: (t not in own, len(held[t]), -len(nx.descendants(graph, t)), t))
    kept: dict[str, set[str]] = {}
    for term in order:
        members = held[term]
        nested = all(members < other or other < members or not members & other for other in kept.values())
        if nested and len(members) > 1 and (term in own or len(members) < len(labels)):
            kept[own.get(term) or graph.nodes[term].get("name", term)] = members
    parents = {}
    for name in dict.fromkeys([*labels, *kept]):
        wider = [other for other in kept if kept.get(name, {name}) < kept[other]]
        if wider:
            parents[name] = min(wider, key=lambda other: len(kept[other]))
    return parents
