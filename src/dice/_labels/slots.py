"""What label transfer leaves in an AnnData object."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice._arguments import is_key, said
from dice._data import read
from dice._data.colors import UNASSIGNED, absent_color, are_colors
from dice._data.write import Slots, column_names, result_key
from dice._errors import InputError
from dice._keys import STATUSES, UNLIKE, LabelKeys, NoveltyKeys
from dice._labels.model import LabelModel
from dice._labels.sets import JudgedLabels
from dice._labels.votes import Votes
from dice._types import Floats


def label_keys(adata: AnnData, labels_key: Any, key_added: str | None = None) -> LabelKeys:
    """Where labels are written: slots that are named after the column that they are learned from, unless told."""
    if key_added is None and not is_key(f"{labels_key}_dice"):
        raise InputError(
            f"labels_key={said(labels_key)} cannot name slots, as files hold no such names: rename that column of "
            "reference.obs (dice.tl.transfer_labels alone also takes another name as key_added=)."
        )
    return LabelKeys(result_key(adata, f"{labels_key}_dice" if key_added is None else key_added, "cell_type_dice"))


def label_slots(
    keys: LabelKeys,
    adata: AnnData,
    model: LabelModel,
    colors: list[str] | None,
    judged: JudgedLabels,
    min_probability: float,
    record: dict[str, Any],
    voted: tuple[pd.Categorical, Votes] | None = None,
) -> Slots:
    """The most likely label of every cell, and beside it what is doubtful about it."""
    names, sets, probabilities = model.names, judged.sets, judged.probabilities
    top = np.sort(probabilities, axis=1)[:, ::-1].astype(np.float32)
    label, used = _labels(names, colors, probabilities, min_probability)
    frame = {"index": adata.obs_names, "columns": column_names(names)}
    uns: dict[str, Any] = {keys.uns: record | {"labels": np.array(names, dtype=str)}}
    if used is not None:
        uns[keys.colors] = used
    by_group = {}
    if voted is not None:
        by_group[keys.voted], uns[keys.uns]["votes"], used = _voted(*voted, names, colors)
        uns |= {} if used is None else {f"{keys.voted}_colors": used}
    return Slots(
        stale=frozenset({keys.colors, keys.voted, f"{keys.voted}_colors"}),
        obs={
            keys.label: label,
            keys.probability: top[:, 0],
            keys.margin: top[:, 0] - top[:, 1],
            keys.set: _in_words(sets, names),
            keys.status: pd.Categorical.from_codes(judged.status, list(STATUSES)).remove_unused_categories(),
            **by_group,
        },
        obsm={
            keys.probability: pd.DataFrame(probabilities.astype(np.float32), **frame),
            keys.set: pd.DataFrame(sets, **frame),
        },
        uns=uns,
    )


def agreed_status(adata: AnnData, keys: LabelKeys) -> Slots:
    """The status of labels after the test for novelty: cells called novel, alone or in a group, are unlike it."""
    status, flags = read.column(adata, keys.status), (NoveltyKeys().group_flag, NoveltyKeys().flag)
    novel = np.any([read.column(adata, flag).to_numpy(dtype=bool) for flag in flags], axis=0)
    words = np.where(novel, UNLIKE, status.astype(object).to_numpy())
    return Slots(obs={keys.status: pd.Categorical(words, categories=list(STATUSES)).remove_unused_categories()})


def _voted(
    groups: pd.Categorical, votes: Votes, names: list[str], colors: list[str] | None
) -> tuple[pd.Categorical, dict[str, Any], list[str] | None]:
    """What groups of cells were voted to be: for every cell, as a table, and the colours."""
    # A group all of whose cells are empty has no label.
    voted, codes = np.flatnonzero(votes.n_cells), np.full(len(votes.n_cells) + 1, -1)
    label, used = _labels(names, colors, votes.probabilities[voted], 0.0)
    codes[voted] = label.codes
    table = {
        "group": np.array([str(name) for name in groups.categories], dtype=str),
        "n_cells": votes.n_cells,
        "label": np.append(label.categories.astype(str), "")[codes[:-1]].astype(str),
        "probability": votes.probabilities.max(1),
        "set": np.asarray(_in_words(votes.sets, names)).astype(str),
        "shares": votes.shares,
    }
    return pd.Categorical.from_codes(codes[groups.codes], label.categories), table, used


def _labels(
    known: list[str], colors: list[str] | None, probabilities: Floats, min_probability: float
) -> tuple[pd.Categorical, list[str] | None]:
    """The most likely labels, or what stands for those that are too unlikely, and the colours of those that there are.

    Labels that no cell has are no categories: scanpy's tests between groups stop at groups without cells.
    """
    names = [*known, *([] if UNASSIGNED in known else [UNASSIGNED])]
    colors = [*colors, absent_color(colors)][: len(names)] if colors is not None and are_colors(colors) else None
    codes = probabilities.argmax(1) if len(probabilities) else np.zeros(0, dtype=np.intp)
    codes = np.where(probabilities.max(1, initial=0) < min_probability, names.index(UNASSIGNED), codes)
    used, codes = np.unique(codes, return_inverse=True)
    label = pd.Categorical.from_codes(codes, [names[code] for code in used])
    return label, None if colors is None else [colors[code] for code in used]


def _in_words(sets: NDArray[np.bool_], names: list[str]) -> pd.Categorical:
    """Sets as text; most cells share a few of them."""
    different, code = np.unique(sets, axis=0, return_inverse=True)
    words = [" | ".join(np.array(names, dtype=object)[row]) for row in different]
    # Two sets may read the same: labels can hold a bar themselves, or nothing at all.
    return pd.Categorical(np.array(words, dtype=object)[code.ravel()], categories=list(dict.fromkeys(words)))
