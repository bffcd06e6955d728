"""The results of label transfer, as slots of an AnnData object."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._arguments import is_key, said
from dice._data import read
from dice._data.colors import MISSING, UNASSIGNED, are_colors
from dice._data.read import column_names, read_safe
from dice._data.write import Slots, result_key
from dice._errors import InputError
from dice._keys import STATUSES, UNLIKE, LabelKeys, NoveltyKeys, SafeKeys
from dice._labels.cells import sums_by_group
from dice._labels.model import LabelModel
from dice._labels.sets import JudgedLabels, of_more_likely
from dice._labels.tree import LabelTree, listed
from dice._types import Codes, Floats, Mask

#: Number of permutations from which the agreement by chance is estimated.
PERMUTATIONS = 20


def label_keys(adata: AnnData, labels_key: Any, key_added: str | None = None) -> LabelKeys:
    """Return the keys of the label slots. By default, the labels column of the reference gives the name."""
    if key_added is None and not is_key(f"{labels_key}_dice"):
        raise InputError(f"`labels_key` must be a name that files can store, got {said(labels_key)}: rename it.")
    return LabelKeys(result_key(adata, f"{labels_key}_dice" if key_added is None else key_added, "cell_type_dice"))


def label_slots(
    keys: LabelKeys, adata: AnnData, judged: JudgedLabels, min_probability: float, record: dict[str, Any],
    voted: tuple[pd.Categorical, dict[str, Any]] | None = None,
) -> Slots:  # fmt: skip
    """Return the slots of labels, probabilities, sets, status, views and votes."""
    model, names, status = judged.model, judged.model.names, _occurring(judged.status, STATUSES)
    label = most_likely(names, judged.probabilities, min_probability)
    record = judged.record | record | {"labels": np.array(names, dtype=str)}
    uns: dict[str, Any] = {keys.uns: record} | _colors_of(label, model, keys.colors)
    obs = {}
    if voted is not None:
        obs[keys.voted], record["votes"] = voted
        uns |= _colors_of(obs[keys.voted], model, f"{keys.voted}_colors")
    obsm = {keys.views: _by_view(record["views"]["view"], *judged.by_view, names, adata.obs_names)}
    common = common_slots(keys, adata.obs_names, names, label, judged.probabilities, judged.sets, status)
    return common | Slots(obs=obs, obsm=obsm, uns=uns)


def common_slots(
    keys: LabelKeys, cells: "pd.Index[Any]", names: list[str], label: pd.Categorical, probabilities: Floats, sets: Mask,
    status: pd.Categorical,
) -> Slots:  # fmt: skip
    """Return the slots of labels that one reference and several references have in common."""
    top = np.sort(probabilities, axis=1)[:, ::-1].astype(np.float32)
    second = top[:, 1] if len(names) > 1 else 0
    obs = {keys.label: label, keys.probability: top[:, 0], keys.margin: top[:, 0] - second}
    obs |= {keys.set: _set_texts(sets, names), keys.status: status}
    tables = {keys.probability: probabilities.astype(np.float32), keys.set: sets}
    obsm = {key: pd.DataFrame(table, cells, column_names(names)) for key, table in tables.items()}
    return Slots(obs=obs, obsm=obsm, stale=frozenset({keys.colors, keys.voted, f"{keys.voted}_colors"}))


def safe_slots(
    keys: SafeKeys, adata: AnnData, model: LabelModel, probabilities: Floats, confident: Mask, unlike: Mask,
    alpha: float, strength: float,
) -> Slots:  # fmt: skip
    """Return the slots of safe labels (the finest node of the tree that can be trusted) and of labels at all levels.

    Cells that are `unlike` the reference (n,) have no safe label, and `confident` cells (n,) keep their label.
    """
    tree, codes, calibration = model.tree, probabilities.argmax(1), model.calibration()
    threshold = tree.threshold(probabilities[~unlike], calibration, model.calibration_codes, alpha, strength)
    nodes = np.where(confident, codes, tree.nodes(probabilities, threshold))
    nodes = np.where(unlike, len(tree.names) - 1, nodes)
    params = {"alpha": alpha, "shift_strength": strength, "threshold": threshold, "learned": tree.learned}
    f1 = {"f1": tree.f1(model.calibration_codes, calibration.argmax(1))}
    slots = _at_nodes(keys, tree, nodes, tree.probability(probabilities, nodes), tree.to_plain() | f1, params)
    levels: dict[str, Any] = {}
    for depth, level in enumerate(tree.all_levels, 1):
        at, name = tree.at_level(depth)[codes], f"{keys.at}{column_names([level])[0]}"
        levels[name] = _at(tree.names, at)
        levels[f"{name}_prob"] = tree.probability(probabilities, at).astype(np.float32)
    earlier = (name for name in read.names(adata, "obs") if name.startswith(keys.at))
    return slots | Slots(obs=levels, stale=frozenset(earlier))


def _at_nodes(
    keys: SafeKeys, tree: LabelTree, nodes: Codes, found: Floats, table: dict[str, Any], params: dict[str, Any]
) -> Slots:
    """Return the safe label, its level and its probability (n,) of cells at these nodes (n,), and the record."""
    figures = {"expected_error": 1 - found, "resolved": nodes < len(tree.names) - 1, "finest": nodes < tree.n_labels}
    params = params | {name: float(values.sum() / max(len(nodes), 1)) for name, values in figures.items()}
    obs = {keys.label: _at(tree.names, nodes), keys.level: _at(tree.level_names, nodes)}
    n_cells = np.bincount(nodes, minlength=len(tree.names))
    uns = {keys.uns: table | {"n_cells": n_cells, "params": params}}
    return Slots(obs=obs | {keys.probability: found.astype(np.float32)}, uns=uns)


def _at(names: Sequence[str], codes: Codes) -> pd.Categorical:
    """Return the name (n,) of every code (n,)."""
    return _occurring(np.array(names, dtype=object)[codes], names)


def _occurring(words: NDArray[Any], known: Sequence[str]) -> pd.Categorical:
    """Return one word per cell. Unused categories are left out, because scanpy's tests fail on them."""
    categories = list(dict.fromkeys(known))
    return pd.Categorical(words.astype(object), categories=categories).remove_unused_categories()


def _by_view(views: Any, codes: Codes, probabilities: Floats, names: list[str], cells: "pd.Index[Any]") -> pd.DataFrame:
    """Return the label of every view, and its probability, as columns of a table."""
    table: dict[str, Any] = {}
    for view, own, likely in zip(views, codes.T, probabilities.T, strict=True):
        table |= {str(view): pd.Categorical.from_codes(own, names), f"{view}_prob": likely.astype(np.float32)}
    return pd.DataFrame(table, index=cells)


def agreed_status(adata: AnnData, keys: LabelKeys) -> Slots:
    """Return the status after the novelty test: cells called novel, alone or in a group, are unlike the reference."""
    safe, flags = SafeKeys(keys.key), (NoveltyKeys().group_flag, NoveltyKeys().flag)
    status, likely = read.column(adata, keys.status), read.column(adata, safe.probability)
    tree, nodes, table = read_safe(adata, safe)
    novel = np.any([read.column(adata, flag).to_numpy(dtype=bool) for flag in flags], axis=0)
    slots = Slots(obs={keys.status: _occurring(np.where(novel, UNLIKE, status.astype(str)), STATUSES)})
    nodes, found = np.where(novel, len(tree.names) - 1, nodes), np.where(novel, 1.0, likely.to_numpy())
    return slots | _at_nodes(safe, tree, nodes, found, table, dict(table["params"]))


def most_likely(known: list[str], probabilities: Floats, min_probability: float = 0.0) -> pd.Categorical:
    """Return the most likely label of every cell, or "unassigned" below `min_probability`."""
    likely = probabilities.max(1, initial=0) >= min_probability
    words = np.where(likely, np.array(known, dtype=object)[probabilities.argmax(1)], UNASSIGNED)
    return _occurring(words, [*known, UNASSIGNED])


def _colors_of(label: pd.Categorical, model: LabelModel, slot: str) -> dict[str, list[str]]:
    """Return the colours of the categories if the reference has colours. The card may come from an untrusted file."""
    colors = model.card.get("colors")
    if not isinstance(colors, list) or len(colors) != len(model.names) or not are_colors(colors):
        return {}
    by_name = {UNASSIGNED: MISSING} | dict(zip(model.names, colors, strict=True))
    return {slot: [by_name[name] for name in label.categories]}


def _set_texts(sets: NDArray[np.bool_], names: list[str]) -> pd.Categorical:
    """Return the sets as text."""
    different, code = np.unique(sets, axis=0, return_inverse=True)
    words = [listed(np.array(names, dtype=object)[row]) for row in different]
    # Different sets may still have the same text, because labels can be empty or quoted.
    return pd.Categorical(np.array(words, dtype=object)[code.ravel()], categories=list(dict.fromkeys(words)))


def count_votes(
    judged: JudgedLabels, groups: pd.Categorical | None, alpha: float
) -> tuple[pd.Categorical, dict[str, Any]] | None:
    """Return the voted label (n,) of every cell and the table of votes, by `groups` or, without them, by fine groups.

    Return None if votes of fine groups (small k-means clusters) do not help (:func:`votes_help`).
    """
    cells, model, probabilities, tree = judged.cells, judged.model, judged.probabilities, judged.model.tree
    voting = cells.fine if groups is None else groups
    codes, n_groups = np.where(cells.seen, voting.codes, -1), len(voting.categories)
    n_cells, mean = vote(probabilities, codes, n_groups)
    label = mean.argmax(1)
    if groups is None and not votes_help(probabilities, codes, label):
        _log.info("Votes are left out, because they would change more labels than are expected to be wrong.")
        return None
    # A group of empty cells has no label.
    names = np.where(n_cells > 0, np.array(model.names, dtype=object)[label], None)
    # A label is in the set if the more likely labels together do not reach the probability.
    sets = _set_texts(of_more_likely(mean) < 1 - alpha, model.names)
    table = {
        "group": np.array([str(name) for name in voting.categories], dtype=str), "n_cells": n_cells,
        "label": np.array([name or "" for name in names], dtype=str), "probability": mean.max(1),
        "set": np.asarray(sets).astype(str), "safe": np.array(tree.names, dtype=str)[tree.nodes(mean, 1 - alpha)],
        "shares": vote(np.eye(len(model.names))[probabilities.argmax(1)], codes, n_groups)[1],
    }  # fmt: skip
    return _occurring(np.append(names, [None])[voting.codes], model.names), table


def vote(probabilities: Floats, groups: Codes, n_groups: int) -> tuple[Codes, Floats]:
    """Return the number of cells (G,) and mean probabilities (G, C) per group. Cells with the group -1 do not vote.

    Probabilities are averaged and not multiplied, because errors of cells in the same group are correlated.
    """
    n_cells = np.bincount(groups[groups >= 0], minlength=n_groups)
    return n_cells, sums_by_group(probabilities, groups, n_groups) / np.maximum(n_cells, 1)[:, None]


def votes_help(probabilities: Floats, groups: NDArray[np.integer], voted: NDArray[np.integer]) -> bool:
    """Return whether votes of groups (n,) help: groups agree better than by chance, and votes change few labels.

    The probabilities (n, C) give the expected number of wrong labels. Votes that change more labels than that add more
    errors than they correct. `voted` (G,) is the label of every group. Cells without a group (-1) are left out.
    Agreement is the share of cells with the most frequent label of their group. For agreement by chance, labels are
    permuted.
    """
    from sklearn.metrics.cluster import contingency_matrix

    labels, likely, groups = (values[groups >= 0] for values in (probabilities.argmax(1), probabilities.max(1), groups))
    agreement = (labels == voted[groups]).mean() if len(groups) else 0.0
    if not len(groups) or agreement < likely.mean():
        return False
    rng = np.random.default_rng(0)
    by_chance = (contingency_matrix(groups, rng.permutation(labels)) for _ in range(PERMUTATIONS))
    chance = [counts.max(1).sum() / len(labels) for counts in by_chance]
    return bool(agreement > np.mean(chance) + 2 * np.std(chance))
