"""Write to AnnData objects: all slots of a call at once, after everything else has succeeded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice import _log
from dice._arguments import is_key, new_key, said
from dice._data.read import names
from dice._errors import InputError
from dice._keys import DenoiseKeys, PriorKeys, names_of_results

#: Slots that hold arrays or records by name.
MAPPINGS = ("layers", "obsm", "varm", "obsp", "uns")
#: Transactions that record all writes. A context variable keeps the calls of several threads apart.
_begun: ContextVar[tuple[Transaction, ...]] = ContextVar("begun", default=())


@dataclass(frozen=True)
class Slots:
    """The values that a call writes, by slot and key. None leaves `X` as it is."""

    X: Any = None
    layers: Mapping[str, Any] = field(default_factory=dict)
    obsm: Mapping[str, Any] = field(default_factory=dict)
    varm: Mapping[str, Any] = field(default_factory=dict)
    obsp: Mapping[str, Any] = field(default_factory=dict)
    uns: Mapping[str, Any] = field(default_factory=dict)
    var: Mapping[str, Any] = field(default_factory=dict)
    obs: Mapping[str, Any] = field(default_factory=dict)
    #: Keys of ``obs``, ``obsm`` and ``uns`` to delete: results of an earlier call that are no longer true.
    stale: frozenset[str] = frozenset()

    def __or__(self, other: Slots) -> Slots:
        """Join two sets of slots. If both write a key, `other` wins."""
        names = [item.name for item in fields(self) if item.name != "X"]
        both = {name: getattr(self, name) | getattr(other, name) for name in names}
        return Slots(X=self.X if other.X is None else other.X, **both)


def write(adata: AnnData, slots: Slots, *others: tuple[AnnData, Slots], copy: bool) -> AnnData | None:
    """Write all slots to `adata` and return None, or to a copy and return it (scanpy's convention).

    `others` are written after it. If anything fails, everything is put back: all slots of all objects, or none.
    """
    target = adata.copy() if copy else adata
    with ExitStack() as undo:
        for one, new in ((target, slots), *others):
            for watching in _begun.get():
                watching.watch(one, new)
            undo.callback(_restore, one, _before(one, new), one.obs.copy(deep=False), one.var.copy(deep=False))
            _write(one, new)
        undo.pop_all()
    return target if copy else None


def _before(target: AnnData, slots: Slots) -> dict[str, dict[str, Any]]:
    """Return the values that are about to be overwritten; None for new keys."""
    stale = {"obsm": slots.stale, "uns": slots.stale}
    touched = {name: {*getattr(slots, name), *stale.get(name, ())} for name in MAPPINGS}
    return {name: {key: getattr(target, name).get(key) for key in keys} for name, keys in touched.items()}


def _write(target: AnnData, slots: Slots) -> None:
    for name in ("obs", "obsm", "uns"):
        for key in slots.stale & set(getattr(target, name).keys()):
            del getattr(target, name)[key]
    for name in (*MAPPINGS, "var", "obs"):
        for key, value in getattr(slots, name).items():
            if name == "obsm" and isinstance(value, pd.DataFrame):
                value = value.set_axis(target.obs_names, axis=0)  # A stand-in has names as text.
            getattr(target, name)[key] = value
    if slots.X is not None:
        target.X = slots.X


def _restore(target: AnnData, before: Mapping[str, dict[str, Any]], obs: pd.DataFrame, var: pd.DataFrame) -> None:
    """Restore the values from before a call that failed."""
    target.obs, target.var = obs, var
    for name, entries in before.items():
        for key, value in entries.items():
            if value is not None:
                getattr(target, name)[key] = value
            elif key in getattr(target, name):
                del getattr(target, name)[key]


def replace(adata: AnnData, result: AnnData, *, copy: bool) -> AnnData | None:
    """Replace `adata` by `result`, which may have other cells and genes, and return None; or return `result`."""
    if copy:
        return result
    AnnData.__init__(adata, result)
    return None


def is_mudata(adata: object) -> bool:
    """Return whether an object has modalities. mudata need not be installed."""
    return not isinstance(adata, AnnData) and isinstance(getattr(adata, "mod", None), Mapping)


def check_writable(adata: Any, *, copy: bool, who: str = "adata") -> None:
    """Check that results can be written, before the work: copies and views of objects on disk cannot."""
    if is_mudata(adata):
        raise InputError(f"{who} has several modalities: pass one of them, out of {list(adata.mod)[:5]}.")
    if not isinstance(adata, AnnData):
        raise InputError(f"`{who}` must be an AnnData object, as ad.read_h5ad returns it, got {said(adata)}.")
    if adata.isbacked and (copy or adata.is_view):
        raise InputError(
            f"A copy or a view of an object backed by a file cannot be written to: call {who}.to_memory() first."
        )


def prior_slot(adata: AnnData, key: Any, *, argument: str = "key_added", who: str = "adata") -> str:
    """Return a key for a prior. Only another prior may be replaced under this key."""
    key = new_key(argument, key, "dice")
    if adata.uns.get(key) is not None and not holds_prior(adata, key):
        raise InputError(
            f"{who}.uns[{key!r}] holds something that dice did not write, and would be lost: pass another key, for "
            f"example {argument}='dice_prior', or remove it with del {who}.uns[{key!r}]."
        )
    return key


def embedding_key(adata: AnnData, key_added: Any) -> str:
    """Return a key for an embedding, which must not be the key of a stored prior."""
    if not is_key(key_added) or holds_prior(adata, key_added):
        raise InputError(f"`key_added` must be a key for an embedding, such as 'X_dice', got {said(key_added)}.")
    check_free(adata, key_added, ("obsm",))
    return str(key_added)


def result_key(adata: AnnData, key_added: Any, example: str, *, besides: str | None = None) -> str:
    """Return a key for results, which must not be the key of a stored prior or of an embedding."""
    taken = None if besides is None else new_key("use_rep", besides, "X_dice")
    if new_key("key_added", key_added, example) == taken or key_added in _taken(adata):
        raise InputError(f"key_added={said(key_added)} is taken: pass another key, for example {example!r}.")
    check_free(adata, key_added, ("obs", "obsm"))
    return str(key_added)


def check_free(adata: AnnData, key: str, slots: tuple[str, ...], *, argument: str = "key_added") -> None:
    """Raise an error if a key holds data that dice did not write: no "dice" in its name and no record in ``uns``."""
    if "dice" in key or isinstance(adata.uns.get(key), Mapping) or f"dice_{key}" in adata.uns:
        return
    for slot in slots:
        if key in getattr(adata, slot):
            what = f"adata.{slot}[{key!r}] was not written by dice"
            raise InputError(f"{what} and would be lost: pass another {argument}.")


def _taken(adata: AnnData) -> set[str]:
    """Return the keys of priors and denoised embeddings, and of their columns."""
    priors = [key for key in adata.uns if holds_prior(adata, key)]
    records = [
        key for key, entry in adata.uns.items() if isinstance(entry, Mapping) and {"call", "genes"} <= set(entry)
    ]
    columns = [PriorKeys(key).split for key in priors] + [DenoiseKeys(key).uncertainty for key in records]
    return {*priors, *records, *columns}


def holds_prior(adata: AnnData, key: str) -> bool:
    entry = adata.uns.get(key)
    return isinstance(entry, Mapping) and "format" in entry


def as_plain(value: Any) -> Any:
    """Return arguments in a form that files can hold: objects by name and fields, functions by name, no None."""
    if is_dataclass(value) and not isinstance(value, type):
        named = {item.name: getattr(value, item.name) for item in fields(value)}
        return as_plain({"name": type(value).__name__, **named})
    if isinstance(value, Mapping):
        return {name: as_plain(entry) for name, entry in value.items() if entry is not None}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple) and all(isinstance(item, int | float) for item in value):
        return [float(item) for item in value]
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return value if isinstance(value, bool | int | float | str) else str(value)


def from_plain(call: Mapping[str, Any], classes: Mapping[str, type]) -> dict[str, Any]:
    """Return the arguments of a stored call; `classes` are the settings objects among them."""
    restored: dict[str, Any] = {}
    for name, value in call.items():
        if isinstance(value, Mapping) and value.get("name") in classes:
            entries = {key: _scalar(entry) for key, entry in value.items() if key != "name"}
            value = classes[str(value["name"])](**entries)
        restored[name] = list(value) if np.ndim(value) == 1 else _scalar(value)
    return restored


def _scalar(value: Any) -> Any:
    """Return a number of Python. Files return numbers of numpy."""
    return value.item() if isinstance(value, np.generic) else value


@dataclass
class Transaction:
    """A user's object, and a stand-in with the same matrices, whose slots are written in its place."""

    adata: AnnData
    stage: AnnData = field(init=False)
    written: Slots = field(default_factory=Slots)

    def __post_init__(self) -> None:
        adata = self.adata
        slots = {name: dict(getattr(adata, name)) for name in ("uns", "obsm", "varm", "obsp", "varp")}
        slots["layers"] = {name: adata.layers[name] for name in names(adata, "layers")}
        # AnnData warns of names that are numbers. The user cannot change them here.
        obs, var = (table.set_axis(table.index.astype(str), axis=0) for table in (adata.obs, adata.var))
        self.stage = AnnData(adata.X, obs=obs, var=var, **slots)

    def watch(self, target: AnnData, slots: Slots) -> None:
        if target is self.stage:
            self.written = self.written | slots

    def leave_out_earlier(self) -> None:
        """Remove the results of earlier calls from the stand-in. The user's object keeps them."""
        uns = self.stage.uns
        records = [key for key in uns if isinstance(uns[key], Mapping) and {"call", "warnings"} <= set(uns[key])]
        made = {slot for key in records if key not in self.written.uns for slot in names_of_results(key)}
        for name in ("uns", "obs", "obsm"):
            for key in made & set(getattr(self.stage, name)) - set(getattr(self.written, name)):
                del getattr(self.stage, name)[key]

    def perform(self, *others: Transaction, copy: bool = False) -> AnnData | None:
        """Write everything to the user's object and return None, or to a copy and return it; `others` come last."""
        return write(self.adata, self.written, *((one.adata, one.written) for one in others), copy=copy)


@contextmanager
def transaction(*adatas: AnnData) -> Iterator[list[Transaction]]:
    """Yield stand-ins for some objects. Writes to them are recorded within the block."""
    begun = [Transaction(adata) for adata in adatas]
    with _log.within(_begun, (*_begun.get(), *begun)):
        yield begun
