"""Combine labels by several references. Each reference labels the query alone, and has a weight for every cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice import _log
from dice._arguments import is_text, said
from dice._data import read
from dice._data.checks import read_labels
from dice._data.store import Prior, find_prior
from dice._data.write import Slots, check_writable, write
from dice._errors import InputError
from dice._keys import AMBIGUOUS, CONFIDENT, UNLIKE, LabelKeys, NoveltyKeys, SafeKeys
from dice._labels.sets import with_most_likely
from dice._labels.slots import common_slots, most_likely
from dice._model.schema import MAX_NAME
from dice._types import Floats, Mask
from dice.options import LabelsKey, Levels

#: Status of cells that no reference explains.
UNLIKE_ALL = "unlike the references"
#: The set of a cell joins the sets of all references with at least this share of the largest weight. A label with a
#: smaller probability is never confident.
HALF = 0.5
#: Smallest probability that a reference gives to a label, so that no reference alone rules a label out.
LEAST = 1e-4
#: Quantile of the novelty of cells that counts as zero, because another technology raises the novelty of all cells.
EXPLAINED = 0.25


@dataclass(frozen=True)
class Opinion:
    """Labels and novelty of n query cells by one reference."""

    name: str
    #: Number of reference cells with each label. Here and below, labels have the names that all references share.
    cells: pd.Series
    #: Probabilities and sets (n, labels).
    probabilities: pd.DataFrame
    sets: pd.DataFrame
    status: np.ndarray
    #: Novelty (n,): the mean of the score of the cell and of the mean score of its group.
    novelty: Floats
    #: Whether the cell, and its group, are called novel (n, 2).
    novel: Mask


def by_each(
    verb: Callable[..., Any], adata: AnnData, reference: Sequence[Any], labels_key: LabelsKey | None, *,
    report: object, copy: bool, **given: Any,
) -> AnnData | None:  # fmt: skip
    """Run a verb with every reference. The first reference comes last, so that its embedding and clusters are kept.

    A reference is given alone, or as a pair with new names of its labels.
    """
    check_writable(adata, copy=copy)
    if not reference or report is not None:
        raise InputError("Pass one or more references; for several, leave `report` out and call dice.pl.report later.")
    sources = [Source.of(one, place, labels_key) for place, one in enumerate(reference, 1)]

    opinions: list[Opinion] = []
    for source in reversed(sources):
        _log.say(f"Reference {source.place} of {len(sources)}.")
        found = verb(adata, source.prior or source.reference, source.levels, **given, copy=copy or source.place > 1)
        query = adata if found is None else found
        opinions.insert(0, source.opinion(query))
    # Remove safe labels and labels by view, because they belong to the first reference alone.
    keys = LabelKeys(f"{sources[0].levels.key}_dice")
    keys_safe = SafeKeys(keys.key)
    stale = {keys.views, keys_safe.label, keys_safe.level, keys_safe.probability, keys_safe.uns}
    stale |= {name for name in read.names(query, "obs") if name.startswith(keys_safe.at)}
    write(query, combined(opinions, keys, read.record(query, keys.uns)) | Slots(stale=frozenset(stale)), copy=False)
    return query if copy else None


@dataclass(frozen=True)
class Source:
    """One of several references, with its place in their list, counted from 1."""

    reference: Any
    place: int
    #: New names of the reference's labels, by old name.
    renamed: Mapping[str, str]
    #: The column of the reference's labels, or several levels.
    levels: Levels
    #: The prior of a reference without cells.
    prior: Prior | None

    @classmethod
    def of(cls, given: Any, place: int, labels_key: LabelsKey | None) -> Source:
        """Check a reference, given alone or as a pair with new names of its labels."""
        reference, renamed = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
        texts = isinstance(renamed, Mapping) and all(is_text(new, MAX_NAME) and new.strip() for new in renamed.values())
        if not texts:
            raise InputError(f"The new names of labels must be a dict of texts, got {said(renamed)}.")
        # An object without cells may have been read from the file of a prior.
        prior = None if isinstance(reference, AnnData) and reference.n_obs else find_prior(reference)
        asked = Levels.of(labels_key)
        own = asked if prior is None else Levels.of(prior.params.get("labels_key"))
        if own is not None and asked is not None and own.key != asked.key:
            raise InputError(
                f"Reference {place} has no labels {asked.key!r}, only {own.key!r}: use one name for the labels "
                "of all references, or leave `labels_key` out if all references are priors."
            )
        if own is None:
            raise InputError(f"Reference {place} has no labels: pass `labels_key`, or a prior with labels.")
        source = cls(reference, place, renamed, own, prior)
        known = source.known_labels()
        unknown = [name for name in renamed if name not in known]
        if unknown:
            names = sorted(known)[:20]
            raise InputError(f"Reference {place} has no labels {said(unknown)} to rename: pass some of {names}.")
        return source

    @property
    def name(self) -> str:
        """Name of the reference in the results."""
        shelf = None if self.prior is None else self.prior.params.get("shelf")
        named = shelf.get("name") if isinstance(shelf, dict) else None
        file = Path(self.reference).stem if isinstance(self.reference, str | Path) else f"reference {self.place}"
        return str(named or file)

    def opinion(self, adata: AnnData) -> Opinion:
        """Read the labels and the novelty of a query that was annotated with this reference."""
        keys, novelty = LabelKeys(f"{self.levels.key}_dice"), NoveltyKeys()
        names = self._shared(read.record(adata, keys.uns)["labels"].astype(str))
        tables = (read.feature_table(adata, key).set_axis(names, axis=1) for key in (keys.probability, keys.set))
        # Labels with the same new name become one label.
        probabilities, sets = (table.astype(float).T.groupby(level=0, sort=False).sum().T for table in tables)
        cells = self._label_cells()
        # A label that the reference has only as part of a coarse label has no cells. Count one cell for such a label.
        cells = cells.groupby(self._shared(cells.index)).sum()
        cells = cells.reindex(probabilities.columns, fill_value=0).clip(lower=1)
        score, group = read.column(adata, novelty.score).astype(float), read.column(adata, novelty.group)
        mean = score.groupby(group.to_numpy(), observed=True).transform("mean").fillna(score)
        flags = (novelty.flag, novelty.group_flag)
        novel = np.column_stack([read.column(adata, flag).to_numpy(bool) for flag in flags])
        status = read.column(adata, keys.status).astype(str).to_numpy()
        return Opinion(self.name, cells, probabilities, sets > 0, status, ((score + mean) / 2).to_numpy(), novel)

    def known_labels(self) -> set[str]:
        """Return the names of the reference's labels, including coarse labels."""
        if self.prior is not None and self.prior.labels is not None:
            return set(self.prior.labels.names)
        keys, who = (*self.levels.columns, self.levels.key), f"reference {self.place}"
        columns = (read_labels(self.reference, key, who).categories for key in keys)
        return {str(name) for column in columns for name in column}

    def _shared(self, labels: Iterable[str]) -> list[str]:
        """Return labels of the reference under the names that all references share."""
        return [str(self.renamed.get(label, label)) for label in labels]

    def _label_cells(self) -> pd.Series:
        """Return the number of cells with each label, in the reference or in the training of its prior."""
        if self.prior is None or self.prior.labels is None:
            return read.column(self.reference, self.levels.key).astype(str).value_counts()
        return pd.Series(self.prior.labels.counts, self.prior.labels.names)


def combined(opinions: list[Opinion], keys: LabelKeys, record: Mapping[str, Any]) -> Slots:
    """Return the slots of the combined labels.

    The set of a cell joins the sets of the references with the largest weights for this cell. The status comes from the
    reference with the largest weight for the label. A cell is novel if it is novel to all references.
    """
    names = list(dict.fromkeys(name for one in opinions for name in one.probabilities))
    told = [one.name for one in opinions]
    used = [f"{name} ({place})" if told.count(name) > 1 else name for place, name in enumerate(told, 1)]
    unlike = np.stack([one.status == UNLIKE for one in opinions])
    mixed, parts = _mixed(opinions, names, unlike)
    label, rows, weights = mixed.argmax(1), np.arange(len(mixed)), parts.sum(2)
    source = parts[:, rows, label].argmax(0)
    status = np.stack([one.status for one in opinions])[source, rows]
    unsure = (status == CONFIDENT) & (mixed.max(1).astype(np.float32) < HALF)
    status = np.select([unlike.all(0), unsure], [UNLIKE_ALL, AMBIGUOUS], status)
    heard = weights >= HALF * weights.max(0)
    sets = with_most_likely((_tables(opinions, "sets", names) * heard[:, :, None]).any(0), mixed)
    n_cells = np.bincount(source, minlength=len(used))
    _log.say(f"Labels by {', '.join(f'{name} ({n:,} cells)' for name, n in zip(used, n_cells, strict=True))}.")
    references = {"name": np.array(used, dtype=str), "weight": weights.sum(1) / max(len(mixed), 1), "cells": n_cells}
    by = pd.Categorical.from_codes(source, used)
    novel = np.all([one.novel for one in opinions], axis=0)
    obs = {f"{keys.label}_reference": by, NoveltyKeys().flag: novel[:, 0], NoveltyKeys().group_flag: novel[:, 1]}
    cells, given = opinions[0].probabilities.index, most_likely(names, mixed)
    record = dict(record) | {"labels": np.array(names, dtype=str), "references": references}
    common = common_slots(keys, cells, names, given, mixed, sets, pd.Categorical(status))
    return common | Slots(obs=obs, uns={keys.uns: record})


def _tables(opinions: list[Opinion], part: str, names: list[str]) -> Floats:
    """Return the probabilities or the sets (R, n, C) of all references. Labels that a reference lacks have zero."""
    return np.stack([getattr(one, part).reindex(columns=names, fill_value=0).to_numpy(float) for one in opinions])


def _mixed(opinions: list[Opinion], names: list[str], unlike: Mask) -> tuple[Floats, Floats]:
    """Return combined probabilities (n, C), and the weight (R, n, C) of each reference.

    The log-probability of a label is a weighted mean over R references. The weight of a reference for a label is
    sqrt(n) / error. Here n is the number of its cells with the label (standard errors fall with sqrt(n)), and error is
    its expected error on the query. The weight is zero for labels that the reference does not have, and for cells that
    are `unlike` (R, n) this reference but like another reference. If only some references have a label, its probability
    is also multiplied by exp(-novelty), because a novel cell may be of a type that only other references have.
    """
    probabilities = _tables(opinions, "probabilities", names)
    novelty = np.stack([one.novelty for one in opinions])
    if novelty.size:
        novelty = novelty - np.quantile(novelty, EXPLAINED, axis=1, keepdims=True)
    cells = np.stack([one.cells.reindex(names, fill_value=0) for one in opinions])
    error = np.maximum(1 - probabilities.max(2).sum(1) / max(probabilities.shape[1], 1), 1e-3)
    weights = np.where((unlike & ~unlike.all(0))[:, :, None], 0.0, (np.sqrt(cells) / error[:, None])[:, None])
    shares = weights / np.maximum(weights.sum(0), 1e-12)
    unknown = np.where((cells > 0).all(0), 0.0, (novelty.min(0) - novelty)[:, :, None])
    evidence = unknown + np.log(np.maximum(probabilities, LEAST))
    agreed = np.exp((shares * evidence).sum(0)) * weights.any(0)
    mixed = agreed / agreed.sum(1, keepdims=True)
    # The share of a reference in a probability is its share in the arithmetic mean.
    parts = shares * np.exp(evidence)
    return mixed, parts * (mixed / np.maximum(parts.sum(0), 1e-300))
