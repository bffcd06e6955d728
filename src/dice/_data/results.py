"""Results of earlier calls, as plots and scores read them: priors, labels and features."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from anndata import AnnData

from dice._data import read
from dice._errors import PriorFormatError
from dice._types import Floats

if TYPE_CHECKING:
    from dice._data.store import Prior
from collections.abc import Sequence

import pandas as pd

from dice._arguments import known_key, said
from dice._data.features import as_numbers, find_table
from dice._data.write import column_names
from dice._errors import InputError, SlotError
from dice._keys import CONFIDENT, FeatureKeys, LabelKeys, SafeKeys
from dice._labels.tree import LabelTree
from dice._types import Codes, Mask


@dataclass(frozen=True)
class Summary:
    """Course of the training and spectrum of the reference."""

    preset: str
    n_latent: int
    history: Mapping[str, Floats]
    singular_values: Floats


def summarize(source: AnnData | Prior | str | os.PathLike[str], key: str) -> Summary:
    """Read the summary of a prior from an AnnData object, a prior or a file.

    The network of a prior in an AnnData object is not read, so that plots do not need torch.
    """
    if isinstance(source, AnnData):
        raw = read.record(source, key, what="prior", step="dice.tl.train_prior")
    else:
        from dice._data.store import find_prior

        raw = find_prior(source, key=key).to_arrays()
    try:
        config = json.loads(raw["config"])
        return Summary(
            preset=str(config["preset"]),
            n_latent=int(config["denoiser"]["n_latent"]),
            history={name: np.asarray(values, dtype=np.float64) for name, values in raw["history"].items()},
            singular_values=np.asarray(raw["singular_values"], dtype=np.float64),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PriorFormatError(
            f"adata.uns[{key!r}] is not a stored prior: train it again with dice.tl.train_prior."
        ) from error


@dataclass(frozen=True)
class Transferred:
    """Labels, probabilities and prediction sets of all cells, as of :func:`dice.tl.transfer_labels`."""

    #: Labels that the reference has, in its order.
    names: list[str]
    #: Label of every cell, or ``"unassigned"``.
    label: pd.Categorical
    probabilities: Floats
    sets: Mask
    #: Cells whose label is beyond doubt.
    confident: Mask
    alpha: float

    @classmethod
    def of(cls, adata: AnnData, labels_key: str, key: str | None) -> Transferred:
        """Read the slots that begin with `key`, by default ``f"{labels_key}_dice"``."""
        keys = LabelKeys(f"{labels_key}_dice" if key is None else key)
        step = f"dice.tl.transfer_labels(adata, reference, {labels_key!r})"
        others = [name for name in read.names(adata, "uns") if LabelKeys(name).status in read.names(adata, "obs")]
        if others and keys.uns not in others:
            raise SlotError(f"There are no labels {keys.label!r}: set key={others[0]!r}, or run {step} first.")
        record = read.record(adata, keys.uns, what="record of transferred labels", step=step)
        return cls(
            names=[str(name) for name in record["labels"]],
            label=pd.Categorical(read.column(adata, keys.label, step=step).astype(str)),
            probabilities=read.array(adata, keys.probability, step=step).astype(np.float64),
            sets=read.array(adata, keys.set, step=step).astype(bool),
            confident=(read.column(adata, keys.status, step=step).astype(str) == CONFIDENT).to_numpy(),
            alpha=float(record["call"]["alpha"]),
        )


@dataclass(frozen=True)
class PredictedTable:
    """Features as of :func:`dice.tl.transfer_features`, and what was measured of them, where that is known."""

    names: list[str]
    mean: Floats
    low: Floats
    high: Floats
    #: Correlation (F,) in held-out cells of the reference, and features that must not be read.
    correlation: Floats
    useless: Mask
    alpha: float
    #: Measured values (n, F), NaN where there are none.
    truth: Floats | None

    @classmethod
    def of(cls, adata: AnnData, key: str, truth_key: str | Sequence[str] | None) -> PredictedTable:
        """Read the slots that begin with `key`; without a `truth_key`, measured values are not looked for."""
        keys, step = FeatureKeys(key), f"dice.tl.transfer_features(adata, reference, {key.removesuffix('_dice')!r})"
        record = read.record(adata, keys.uns, what="record of predicted features", step=step)
        table = record["features"]
        names = [str(name) for name in table["name"]]
        mean, low, high = (
            read.array(adata, name, step=step).astype(np.float64) for name in (keys.mean, keys.low, keys.high)
        )
        truth = None if truth_key is None else _measured(adata, truth_key, names)
        correlation, useless = np.asarray(table["correlation"], dtype=float), np.asarray(table["useless"], dtype=bool)
        return cls(names, mean, low, high, correlation, useless, float(record["call"]["alpha"]), truth)

    @property
    def ranked(self) -> Codes:
        """Features in the order of their correlation, the best first; those without one last."""
        return np.argsort(-np.nan_to_num(self.correlation, nan=-2.0), kind="stable")

    def chosen(self, features: Sequence[str] | None, n: int) -> list[int]:
        """Positions of the features that the caller names, or of the best ones."""
        if features is None:
            return [int(i) for i in self.ranked[:n]]
        wanted = [features] if isinstance(features, str) else list(features)
        return [self.names.index(known_key(name, self.names, "feature", "the predicted ones")) for name in wanted]


def _measured(adata: AnnData, truth_key: str | Sequence[str], names: list[str]) -> Floats:
    """Measured values (n, F) of the predicted features, by name, wherever a reference might keep them."""
    table = find_table(adata, adata, truth_key, "adata")
    table = table.set_axis(column_names([str(name) for name in table.columns]), axis=1)
    found = [name for name in names if name in table.columns]
    if not found:
        raise InputError(
            f"truth_key={said(truth_key)} has none of the predicted features {names[:3]}, but "
            f"{list(table.columns[:3])}: set truth_key to what was measured of these."
        )
    return pd.DataFrame(as_numbers(table[found], truth_key, "adata"), columns=found).reindex(columns=names).to_numpy()


def read_safe(adata: AnnData, keys: SafeKeys) -> tuple[LabelTree, Codes, dict[str, Any]]:
    """Return the tree of labels, the node (n,) of every cell, and the record of safe labels."""
    table = read.record(adata, keys.uns, what="record of safe labels", step="dice.tl.safe_labels")
    tree, given = LabelTree.from_plain(table), read.column(adata, keys.label, step="dice.tl.safe_labels")
    return tree, pd.Index(tree.names).get_indexer(given.astype(str)), dict(table)


def from_plain(call: Mapping[str, Any], classes: Mapping[str, type]) -> dict[str, Any]:
    """Arguments of a stored call, as the verb takes them; `classes` are the settings objects that it may name."""
    restored: dict[str, Any] = {}
    for name, value in call.items():
        if isinstance(value, Mapping) and value.get("name") in classes:
            entries = {key: _scalar(entry) for key, entry in value.items() if key != "name"}
            value = classes[str(value["name"])](**entries)
        restored[name] = list(value) if np.ndim(value) == 1 else _scalar(value)
    return restored


def _scalar(value: Any) -> Any:
    """Files give numpy's numbers back."""
    return value.item() if isinstance(value, np.generic) else value
