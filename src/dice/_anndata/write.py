"""The one place that writes to a user's AnnData object, after everything else has succeeded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anndata import AnnData

from dice._errors import InputError


@dataclass(frozen=True)
class Slots:
    """What a call writes, by slot and key; of `X`, None leaves it as it is."""

    X: Any = None
    layers: Mapping[str, Any] = field(default_factory=dict)
    obsm: Mapping[str, Any] = field(default_factory=dict)
    varm: Mapping[str, Any] = field(default_factory=dict)
    obsp: Mapping[str, Any] = field(default_factory=dict)
    uns: Mapping[str, Any] = field(default_factory=dict)
    var: Mapping[str, Any] = field(default_factory=dict)
    obs: Mapping[str, Any] = field(default_factory=dict)
    #: Keys of ``obs``, ``obsm`` and ``uns`` that an earlier call may have left and that no longer hold.
    stale: frozenset[str] = frozenset()


def write(adata: AnnData, slots: Slots, *, copy: bool) -> AnnData | None:
    """Write all slots to `adata` and return None, or to a copy and return it (scanpy's convention)."""
    target = adata.copy() if copy else adata
    for name in ("obs", "obsm", "uns"):
        for key in slots.stale & set(getattr(target, name).keys()):
            del getattr(target, name)[key]
    if slots.X is not None:
        target.X = slots.X
    for name in ("layers", "obsm", "varm", "obsp", "uns", "var", "obs"):
        for key, value in getattr(slots, name).items():
            getattr(target, name)[key] = value
    return target if copy else None


def replace(adata: AnnData, result: AnnData, *, copy: bool) -> AnnData | None:
    """Make `adata` hold all of `result`, other cells and genes included, and return None; or return `result`."""
    if copy:
        return result
    AnnData.__init__(adata, result)
    return None


def check_writable(adata: AnnData, *, copy: bool) -> None:
    """What AnnData itself would refuse only after all the work: copies and views of objects on disk."""
    if adata.isbacked and (copy or adata.is_view):
        raise InputError(
            "A copy or a view of an object that is backed by a file cannot be written to: call adata.to_memory() first."
        )
