"""Labels by several references: each labels the query by itself, and counts by how well it knows the cells."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
import pandas as pd
from anndata import AnnData

from dice import _log
from dice._arguments import said
from dice._data import read
from dice._data.read import column_names
from dice._data.store import Prior, find_prior
from dice._data.write import Slots, check_writable, write
from dice._errors import InputError
from dice._keys import UNLIKE, LabelKeys, NoveltyKeys, SafeKeys
from dice._labels.slots import _labels, _set_texts
from dice._types import Floats, Mask
from dice.options import Levels

P = ParamSpec("P")
R = TypeVar("R")
#: Status of cells that no reference explains.
UNLIKE_ALL = "unlike the references"
#: A set holds those of all references that count at least half as much as the one that counts most.
COUNTS = 0.5
#: Least probability of a label that a reference knows, so that none alone rules a label out.
LEAST = 1e-4
#: Novelty begins where a quarter of the cells are: a technology of its own makes all cells of a query novel alike.
EXPLAINED = 0.25


class Opinion(NamedTuple):
    """What one reference says of n cells."""

    name: str
    #: Number of its cells by label, by the names that all references share.
    cells: pd.Series
    #: Probabilities and sets (n, labels), by the same names.
    probabilities: pd.DataFrame
    sets: pd.DataFrame
    status: np.ndarray
    #: Novelty (n,): the mean of the cell's and of its group's.
    novelty: Floats
    #: Whether the cell, and its group, are called novel (n, 2).
    novel: Mask


def takes_several(verb: Callable[P, R]) -> Callable[P, R]:
    """Let a verb take a list of references, each alone or as a pair with names for its labels."""
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = dict(signature.bind_partial(*args, **kwargs).arguments)
        if not isinstance(given.get("reference"), list | tuple):
            return verb(*args, **kwargs)
        return cast("R", _by_each(verb, given))

    return call


def _by_each(verb: Callable[..., Any], given: dict[str, Any]) -> AnnData | None:
    """Run a verb with every reference, the first one last, so that its embedding and clusters are kept."""
    adata, references, copy = given.pop("adata"), given.pop("reference"), bool(given.pop("copy", False))
    check_writable(adata, copy=copy)
    if not references or given.get("report") is not None:
        raise InputError("With several references, pass at least one and no `report`: call dice.pl.report afterwards.")
    pairs = [one if isinstance(one, tuple) else (one, {}) for one in references]
    opinions: list[Opinion] = []
    keys, query = LabelKeys("cell_type_dice"), adata
    for place, (one, renamed) in reversed([*enumerate(pairs)]):
        if not isinstance(renamed, Mapping):
            raise InputError(f"Names for the labels of a reference must be a mapping, got {said(renamed)}.")
        prior = None if isinstance(one, AnnData) else find_prior(one)
        known = given.get("labels_key") if prior is None else prior.params.get("labels_key")
        levels = Levels.of(known)
        if levels is None:
            raise InputError(
                f"Reference {place + 1} has no labels: pass `labels_key`, or a prior that was trained with it."
            )
        _log.say(f"Reference {place + 1} of {len(pairs)}.")
        query = verb(adata, one, **given | {"labels_key": known}, copy=copy or place > 0) or adata
        keys = LabelKeys(f"{levels.key}_dice")
        opinions.insert(0, _opinion(query, keys, _name(one, prior, place), _cells(one, prior, levels.key), renamed))
    # Safe labels and labels by view would be those of the first reference alone.
    keys_safe = SafeKeys(keys.key)
    stale = {keys.views, keys_safe.label, keys_safe.level, keys_safe.probability, keys_safe.uns}
    stale |= {name for name in read.names(query, "obs") if name.startswith(keys_safe.at)}
    slots = combined(opinions, keys, read.record(query, keys.uns)) | Slots(stale=frozenset(stale))
    write(query, slots, copy=False)
    return query if copy else None


def _name(reference: Any, prior: Prior | None, place: int) -> str:
    """What the column of references calls one."""
    shelf = None if prior is None else prior.params.get("shelf")
    named = shelf.get("name") if isinstance(shelf, dict) else None
    return str(named) if named else Path(reference).stem if isinstance(reference, str) else f"reference {place + 1}"


def _cells(reference: Any, prior: Prior | None, key: str) -> pd.Series:
    """Number of cells by label, of a reference or of those that a prior has learned from."""
    if prior is None or prior.labels is None:
        return read.column(reference, key).astype(str).value_counts()
    return pd.Series(prior.labels.counts, prior.labels.names)


def _opinion(adata: AnnData, keys: LabelKeys, name: str, cells: pd.Series, renamed: Mapping[str, str]) -> Opinion:
    """Return the labels of an annotated query by its reference, whose numbers of cells by label are `cells`."""
    names = [str(renamed.get(label, label)) for label in read.record(adata, keys.uns)["labels"].astype(str)]
    tables = [read.feature_table(adata, key).set_axis(names, axis=1) for key in (keys.probability, keys.set)]
    # Labels that are given one name are one label.
    probabilities, sets = (table.astype(float).T.groupby(level=0, sort=False).sum().T for table in tables)
    # A label that only coarse labels stand for in the reference has no cells there, and counts as if it had one.
    known = cells.groupby([str(renamed.get(label, label)) for label in cells.index]).sum()
    known = known.reindex(probabilities.columns, fill_value=0).clip(lower=1)
    novelty = NoveltyKeys()
    score, group = read.column(adata, novelty.score).astype(float), read.column(adata, novelty.group)
    mean = score.groupby(group.to_numpy(), observed=True).transform("mean").fillna(score)
    novel = np.stack([read.column(adata, flag).to_numpy(bool) for flag in (novelty.flag, novelty.group_flag)], axis=1)
    status = read.column(adata, keys.status).astype(str).to_numpy()
    return Opinion(name, known, probabilities, sets > 0, status, ((score + mean) / 2).to_numpy(), novel)


def combined(opinions: list[Opinion], keys: LabelKeys, record: Mapping[str, Any]) -> Slots:
    """Return the slots of the combined labels. Their log-probability is the weighted mean over references.

    The weight of a reference for a label is the square root of its number of cells with that label, because the
    standard error of what it has learned falls with them, over its expected error on the query. It is zero for labels
    that the reference does not have, and for cells that are unlike this reference but like another one. The probability
    of a label that only some references have is also multiplied by exp(-novelty): a novel cell may be of a type that
    the others have.
    """
    names = list(dict.fromkeys(name for one in opinions for name in one.probabilities))
    probabilities, sets = (
        np.stack([getattr(one, part).reindex(columns=names, fill_value=0).to_numpy(float) for one in opinions])
        for part in ("probabilities", "sets")
    )
    novelty, unlike = (
        np.stack(x) for x in zip(*((one.novelty, one.status == UNLIKE) for one in opinions), strict=True)
    )
    novelty = novelty - np.quantile(novelty, EXPLAINED, axis=1, keepdims=True)
    cells = np.stack([one.cells.reindex(names, fill_value=0) for one in opinions])
    known, error = cells > 0, np.maximum(1 - probabilities.max(2).mean(1), 1e-3)
    counts = np.where((unlike & ~unlike.all(0))[:, :, None], 0.0, (np.sqrt(cells) / error[:, None])[:, None])
    shares = counts / np.maximum(counts.sum(0), 1e-12)
    unknown = np.where(known.all(0), 0.0, (novelty.min(0) - novelty)[:, :, None])
    evidence = unknown + np.log(np.maximum(probabilities, LEAST))
    agreed = np.exp((shares * evidence).sum(0)) * counts.any(0)
    mixed = agreed / agreed.sum(1, keepdims=True)
    # Of the probability of a label, every reference has the part that it would have in a plain mean.
    parts = shares * np.exp(evidence)
    parts *= mixed / np.maximum(parts.sum(0), 1e-300)
    weights = parts.sum(2)
    top, code, rows = np.sort(mixed, axis=1)[:, ::-1].astype(np.float32), mixed.argmax(1), np.arange(len(mixed))
    source = parts[:, rows, code].argmax(0)
    status = np.stack([one.status for one in opinions])[source, rows]
    status = np.where((status == "confident") & (top[:, 0] < COUNTS), "ambiguous", status)
    status = np.where(unlike.all(0), UNLIKE_ALL, status)
    likely = (sets * (weights >= COUNTS * weights.max(0))[:, :, None]).any(0)
    likely[rows, code] = True
    novel = np.all([one.novel for one in opinions], axis=0)
    frame = {"index": opinions[0].probabilities.index, "columns": column_names(names)}
    used = [one.name for one in opinions]
    told = {
        "name": np.array(used, dtype=str),
        "weight": weights.mean(1),
        "cells": np.bincount(source, minlength=len(used)),
    }
    _log.say(f"Labels by {', '.join(f'{n} ({k:,} cells)' for n, k in zip(used, told['cells'], strict=True))}.")
    return Slots(
        stale=frozenset({keys.colors, keys.voted, f"{keys.voted}_colors"}),
        obs={
            keys.label: _labels(names, mixed),
            keys.probability: top[:, 0],
            keys.margin: top[:, 0] - (top[:, 1] if len(names) > 1 else 0),
            keys.set: _set_texts(likely, names),
            keys.status: pd.Categorical(status),
            f"{keys.label}_reference": pd.Categorical(
                np.array(used, dtype=object)[source], categories=list(dict.fromkeys(used))
            ),
            NoveltyKeys().flag: novel[:, 0],
            NoveltyKeys().group_flag: novel[:, 1],
        },
        obsm={
            keys.probability: pd.DataFrame(mixed.astype(np.float32), **frame),
            keys.set: pd.DataFrame(likely, **frame),
        },
        uns={keys.uns: dict(record) | {"labels": np.array(names, dtype=str), "references": told}},
    )
