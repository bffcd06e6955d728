"""Write to AnnData objects: all slots of a call at once, after everything else has succeeded."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeAlias

from anndata import AnnData

from dice._arguments import is_key, new_key, said
from dice._errors import InputError
from dice._keys import DenoiseKeys, PriorKeys, names_of_results

#: Slots that hold arrays or records by name.
MAPPINGS = ("layers", "obsm", "varm", "obsp", "uns")
#: Values of an object by slot and key, and its tables ``obs`` and ``var``.
State: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Slots:
    """The values that a call writes, by slot and key."""

    layers: Mapping[str, Any] = field(default_factory=dict)
    obsm: Mapping[str, Any] = field(default_factory=dict)
    varm: Mapping[str, Any] = field(default_factory=dict)
    obsp: Mapping[str, Any] = field(default_factory=dict)
    uns: Mapping[str, Any] = field(default_factory=dict)
    var: Mapping[str, Any] = field(default_factory=dict)
    obs: Mapping[str, Any] = field(default_factory=dict)
    #: Keys of ``obs``, ``obsm`` and ``uns`` to delete: outdated results of an earlier call.
    stale: frozenset[str] = frozenset()

    def __or__(self, other: Self) -> Self:
        """Join two sets of slots. If both write a key, `other` wins."""
        return type(self)(**{item.name: getattr(self, item.name) | getattr(other, item.name) for item in fields(self)})


def write(adata: AnnData, slots: Slots, *, copy: bool) -> AnnData | None:
    """Write all slots to `adata` and return None, or to a copy and return it (scanpy's convention)."""
    target = adata.copy() if copy else adata
    with all_or_nothing(target):
        for name in ("obs", "obsm", "uns"):
            for key in slots.stale & set(getattr(target, name).keys()):
                del getattr(target, name)[key]
        for name in (*MAPPINGS, "var", "obs"):
            for key, value in getattr(slots, name).items():
                getattr(target, name)[key] = value
    return target if copy else None


@contextmanager
def all_or_nothing(*adatas: AnnData) -> Iterator[list[State]]:
    """Yield the state of some objects. If the block fails, all slots of all objects are restored."""
    before = [_state(adata) for adata in adatas]
    try:
        yield before
    except BaseException:
        for adata, state in zip(adatas, before, strict=True):
            adata.obs, adata.var = state.pop("obs"), state.pop("var")
            for name, entries in state.items():
                slot = getattr(adata, name)
                for key in set(slot) - set(entries) - {None}:
                    del slot[key]
                for key in entries:
                    slot[key] = entries[key]
        raise


def _state(adata: AnnData) -> State:
    """Return the values in all slots, without copies: calls replace values and never edit them in place."""
    return _entries(adata, *MAPPINGS) | {"obs": adata.obs.copy(deep=False), "var": adata.var.copy(deep=False)}


def stand_in(adata: AnnData, *, expression: bool = True) -> AnnData:
    """Return a new object with the same matrices and values. Without `expression`, leave ``X`` and layers out."""
    # AnnData warns about names that are numbers. The user cannot change the names here.
    obs, var = (table.set_axis(table.index.astype(str), axis=0) for table in (adata.obs, adata.var))
    slots = _entries(adata, *MAPPINGS, "varp") | ({} if expression else {"layers": None})
    return AnnData(adata.X if expression else None, obs=obs, var=var, **slots)


def _entries(adata: AnnData, *slots: str) -> State:
    """Return the values in some slots, without ``X``, which is a layer without a key from AnnData 0.13 on."""
    mappings = {name: getattr(adata, name) for name in slots}
    return {name: {key: slot[key] for key in slot if key is not None} for name, slot in mappings.items()}


def without_earlier(adata: AnnData, before: State) -> AnnData:
    """Return an object without the results of earlier calls. `before` is its state at the start of this call."""
    shown = stand_in(adata)
    records = {key: entry for key, entry in adata.uns.items() if isinstance(entry, Mapping) and "warnings" in entry}
    earlier = {key for key, entry in records.items() if entry is before["uns"].get(key)}
    made = {slot for key in earlier for slot in names_of_results(key)}
    made -= {slot for key in records.keys() - earlier for slot in names_of_results(key)}
    for name in ("uns", "obs", "obsm"):
        for key in made & set(getattr(shown, name)):
            del getattr(shown, name)[key]
    return shown


def replace(adata: AnnData, result: AnnData, *, copy: bool) -> AnnData | None:
    """Replace `adata` in place by `result`, which may have other cells and genes. With `copy`, return `result`."""
    if copy:
        return result
    AnnData.__init__(adata, result)
    return None


def is_mudata(adata: object) -> bool:
    """Return whether an object has modalities. mudata need not be installed."""
    return not isinstance(adata, AnnData) and isinstance(getattr(adata, "mod", None), Mapping)


def check_writable(adata: Any, *, copy: bool, who: str = "adata", reference: object = None) -> None:
    """Check early that results can be written. Copies and views of objects on disk cannot be changed.

    A `reference` must be another object.
    """
    if is_mudata(adata):
        raise InputError(f"{who} has several modalities: pass one of {list(adata.mod)[:5]}.")
    if not isinstance(adata, AnnData):
        raise InputError(f"`{who}` must be an AnnData object, as ad.read_h5ad returns it, got {said(adata)}.")
    if adata is reference:
        raise InputError("adata and reference are the same object: pass the query first and the reference second.")
    if adata.isbacked and (copy or adata.is_view):
        raise InputError(f"{who} is on disk, so copies and views are read-only: call {who}.to_memory() first.")


def prior_slot(adata: AnnData, key: Any, *, argument: str = "key_added", who: str = "adata") -> str:
    """Return a key for a prior. It must be free or hold an earlier prior."""
    key = new_key(argument, key, "dice")
    if adata.uns.get(key) is not None and not holds_prior(adata, key):
        raise InputError(f"{who}.uns[{key!r}] was not written by dice and would be lost: pass another {argument}.")
    return key


def embedding_key(adata: AnnData, key_added: Any) -> str:
    """Return a key for an embedding, which must not be the key of a stored prior."""
    if not is_key(key_added) or holds_prior(adata, key_added):
        raise InputError(f"`key_added` must be a key for an embedding, such as 'X_dice', got {said(key_added)}.")
    check_free(adata, key_added, ("obsm", "uns"))
    return str(key_added)


def result_key(adata: AnnData, key_added: Any, example: str, *, besides: str | None = None) -> str:
    """Return a key for results. It must not be the key of a prior, of an embedding, or of an input (`besides`)."""
    taken = None if besides is None else new_key("use_rep", besides, "X_dice")
    if new_key("key_added", key_added, example) == taken or key_added in _taken(adata):
        raise InputError(f"key_added={said(key_added)} is taken: pass another key, for example {example!r}.")
    check_free(adata, key_added, ("obs", "obsm", "obsp", "uns"))
    return str(key_added)


def check_free(adata: AnnData, key: str, slots: tuple[str, ...], *, argument: str = "key_added") -> None:
    """Raise an error if dice did not write the data under a key: no "dice" in the name, no record in ``uns``."""
    if "dice" in key or _is_record(adata.uns.get(key)) or f"dice_{key}" in adata.uns:
        return
    for slot in slots:
        name = f"{key}_connectivities" if slot == "obsp" else key
        if name in getattr(adata, slot):
            what = f"adata.{slot}[{name!r}] was not written by dice"
            raise InputError(f"{what} and would be overwritten: pass another {argument}.")


def _is_record(entry: Any) -> bool:
    """Return whether an entry of ``uns`` is a record of dice. Records of scanpy hold nothing but parameters."""
    if not isinstance(entry, Mapping):
        return False
    params = entry.get("params", ())
    return not {"call", "n_samples"}.isdisjoint(entry) or (isinstance(params, Mapping) and "normalisation" in params)


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
