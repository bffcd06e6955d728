"""Read slots of an AnnData object, or raise an error that says how to fill them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice._arguments import as_embedding, said
from dice._errors import InputError, SlotError
from dice._keys import CONFIDENT, LabelKeys, SafeKeys
from dice._labels.tree import LabelTree
from dice._types import Codes, Floats, Mask

#: Maximum number of different labels in a column. A column with more values holds names of cells.
MOST_DISTINCT = 200
#: Names that files reserve, and the longest name that all files can hold.
RESERVED, MAX_COLUMN = ("", ".", "..", "_index"), 200


def names(adata: AnnData, *slots: str) -> list[str]:
    """Return the keys of one or several slots. From AnnData 0.13 on, ``X`` is a layer without a key: it is left out."""
    return [key for slot in slots for key in getattr(adata, slot) if key is not None]


def column(adata: AnnData, key: str, *, step: str | None = None, argument: str = "color") -> "pd.Series[Any]":
    """Return one value per cell: a column of ``obs``, a gene, or a column of a table in ``obsm`` ("protein_dice:CD4").

    Errors name the call `step` that writes the column or, without `step`, the user's `argument`.
    """
    if key in adata.obs:
        return adata.obs[key]
    slot, _, name = str(key).partition(":")
    table = adata.obsm.get(slot)
    if isinstance(table, pd.DataFrame) and name in table.columns:
        return table[name]
    if step is not None:
        raise SlotError(f"adata.obs has no column {key!r}: run {step} first.")
    if key in adata.var_names:
        return pd.Series(dense(adata[:, key].X).ravel())
    raise SlotError(
        f"{key!r} is neither a column of adata.obs nor a gene, nor 'TABLE:COLUMN' of adata.obsm: set {argument} to "
        f"one of {names(adata, 'obs')[:20]}."
    )


def feature_table(adata: AnnData, key: str) -> pd.DataFrame:
    """Return ``obsm[key]`` as a table. Columns of an array are named by ``uns["<key>_names"]``, or else numbered."""
    values = adata.obsm[key]
    if isinstance(values, pd.DataFrame):
        return values.set_axis(values.columns.astype(str), axis=1)
    names = adata.uns.get(f"{key}_names")
    return named_table(dense(values), adata, names if np.ndim(names) == 1 else None, key)


def named_table(values: Any, adata: AnnData, names: Any, key: str = "") -> pd.DataFrame:
    """Return values (n, F) of all cells as a table. Features are numbered unless there are F names."""
    values = np.asarray(values)
    if values.ndim != 2:
        raise InputError(f"obsm[{key!r}] must have the shape (cells, features), got {values.shape}: pass another key.")
    if names is None or len(names) != values.shape[1]:
        names = [f"{key} {i}" for i in range(values.shape[1])]
    return pd.DataFrame(values, index=adata.obs_names, columns=[str(name) for name in names])


def dense(values: Any) -> Any:
    """Return any array as a dense array in memory."""
    values = values.compute() if hasattr(values, "compute") else values
    return values.toarray() if hasattr(values, "toarray") else np.asarray(values)


def array(adata: AnnData, key: str, *, step: str = "dice.tl.denoise", rows: Any = slice(None)) -> Any:
    """Return ``obsm[key]`` of some cells, without reading other cells. `step` is the call that writes this slot."""
    if key not in adata.obsm:
        raise SlotError(f"adata.obsm has no {key!r}: run {step} first.")
    return np.asarray(adata.obsm[key][rows])


def embedding(adata: AnnData, key: Any, *, name: str = "adata", dtype: type = np.float32) -> Floats:
    """Return ``obsm[key]``, which may be sparse or a table, as a finite array. Errors call the object `name`."""
    if not isinstance(key, str) or key not in adata.obsm:
        step = "dice.tl.train_prior" if name == "reference" else "dice.tl.denoise"
        raise SlotError(f"{name}.obsm has no {said(key)}: run {step} first, or name one of {names(adata, 'obsm')}.")
    try:
        return np.ascontiguousarray(as_embedding(adata.obsm[key]), dtype=dtype)
    except InputError as error:
        raise InputError(f"{name}.obsm[{key!r}] cannot be used. {error}") from error


def as_keys(use_rep: Any) -> list[Any]:
    """Return one key of ``obsm``, or several, as a list."""
    keys = [use_rep] if isinstance(use_rep, str) or not isinstance(use_rep, Iterable) else list(use_rep)
    if not keys:
        raise InputError("use_rep is empty: name at least one key of adata.obsm.")
    return keys


def labels(adata: AnnData, key: Any, argument: str) -> NDArray[Any]:
    """Return a column of ``obs``, with None for blank names. Errors name the `argument` that the user passed."""
    if not isinstance(key, str) or key not in adata.obs:
        raise SlotError(f"adata.obs has no column {said(key)}: set {argument} to one of {names(adata, 'obs')}.")
    values = np.array(adata.obs[key], dtype=object)
    values[[is_blank(value) for value in values]] = None
    return values


def is_blank(name: Any) -> bool:
    """Return whether a name is empty or blank. Tables that were stored as text have such names for missing values."""
    return isinstance(name, str) and not name.strip()


def record(adata: AnnData, key: str, *, what: str = "record", step: str | None = None) -> Any:
    """Return ``uns[key]``, which the call `step` writes. Without a `step`, return None if it is missing."""
    found = adata.uns.get(key)
    if found is None and step is not None:
        raise SlotError(f"There is no {what} in adata.uns[{key!r}]: run {step} first.")
    return found


@dataclass(frozen=True)
class Transferred:
    """Labels, probabilities and prediction sets of all cells, as written by :func:`dice.tl.transfer_labels`."""

    #: Labels of the reference, in the order of the reference.
    names: list[str]
    #: Label of every cell, or ``"unassigned"``.
    label: pd.Categorical
    probabilities: Floats
    sets: Mask
    #: Cells with the status "confident".
    confident: Mask
    #: The record of the call in ``uns``.
    record: dict[str, Any]

    @property
    def alpha(self) -> float:
        """The error rate `alpha` of the call."""
        return float(self.record["call"]["alpha"])

    @classmethod
    def of(cls, adata: AnnData, labels_key: str, key: str | None) -> Self:
        """Read the slots that begin with `key`, by default ``f"{labels_key}_dice"``."""
        keys = LabelKeys(f"{labels_key}_dice" if key is None else key)
        step = f"dice.tl.transfer_labels(adata, reference, {labels_key!r})"
        others = [name for name in names(adata, "uns") if LabelKeys(name).status in names(adata, "obs")]
        if others and keys.uns not in others:
            raise SlotError(f"There are no labels {keys.label!r}: set key={others[0]!r}, or run {step} first.")
        made = record(adata, keys.uns, what="record of transferred labels", step=step)
        return cls(
            names=[str(name) for name in made["labels"]],
            label=pd.Categorical(column(adata, keys.label, step=step).astype(str)),
            probabilities=array(adata, keys.probability, step=step).astype(np.float64),
            sets=array(adata, keys.set, step=step).astype(bool),
            confident=(column(adata, keys.status, step=step).astype(str) == CONFIDENT).to_numpy(),
            record=made,
        )


def read_safe(adata: AnnData, keys: SafeKeys) -> tuple[LabelTree, Codes, dict[str, Any]]:
    """Return the tree of labels, the node (n,) of every cell, and the record of safe labels."""
    table = record(adata, keys.uns, what="record of safe labels", step="dice.tl.safe_labels")
    tree, given = LabelTree.from_plain(table), column(adata, keys.label, step="dice.tl.safe_labels")
    return tree, pd.Index(tree.names).get_indexer(given.astype(str)), dict(table)


def label_columns(adata: AnnData) -> list[str]:
    """Return up to three columns that may hold labels. Columns with names such as "cell_type" come first."""
    columns = [name for name in adata.obs if not pd.api.types.is_numeric_dtype(adata.obs[name])]
    columns = [str(name) for name in columns if 2 <= adata.obs[name].nunique() <= MOST_DISTINCT]
    return sorted(columns, key=lambda name: not re.search("type|label|annot", name.lower()))[:3]


def stored_colors(adata: AnnData, labels_key: str) -> dict[Any, str] | None:
    """Return the colour of every label, if scanpy has stored them."""
    colors, labels = adata.uns.get(f"{labels_key}_colors"), pd.Categorical(adata.obs[labels_key]).categories
    if colors is None or len(colors) != len(labels):
        return None
    return {label: str(color) for label, color in zip(labels, colors, strict=True)}


def column_names(names: list[str]) -> list[str]:
    """Return column names that files can hold: short, without slashes, and unique."""
    columns: list[str] = []
    for name in names:
        column = name.replace("/", "_").replace("\\", "_")[:MAX_COLUMN]
        while column in columns or column in RESERVED:
            column += "_"
        columns.append(column)
    return columns
