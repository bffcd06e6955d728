"""Cells in files: read whole, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dice._errors import InputError
from dice._files import atomic, check_room, check_target, followed

if TYPE_CHECKING:
    from anndata import AnnData

    from dice._data.store import Prior

SUFFIXES = (".h5ad", ".zarr")


def check_output(path: Path) -> Path:
    """Find out before the work, not after it, that there is no way to write."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"The output {str(path)!r} is neither .h5ad nor .zarr: give it one of these endings.")
    return check_target(path, store=path.suffix == ".zarr")


def check_apart(**outputs: Path | None) -> None:
    """Refuse one file for two outputs, of which the last would be all that is left."""
    named: dict[Path, str] = {}
    for flag, path in outputs.items():
        if path is None:
            continue
        first = named.setdefault(followed(path), flag)
        if first != flag:
            raise InputError(f"Two outputs, --{first} and --{flag}, are the file {str(path)!r}: name another for one.")


def read(path: Path) -> AnnData:
    """All of a file in memory."""
    from dice._data import files  # torch and anndata load after the help pages

    return files.read(path)


def read_reference(path: Path, read: Callable[[Path], AnnData] = read) -> AnnData | Prior:
    """A reference with its cells, or a prior of the shelf."""
    from dice import priors

    return priors.load(str(path)) if priors.is_name(path) else read(path)


def write(adata: AnnData, path: Path) -> None:
    """Write all of an object; lazy arrays in it are streamed."""
    store = path.suffix == ".zarr"
    if not store:  # A store is compressed, and tells by itself where it has no room.
        check_room(path, _least_bytes(adata))
    with atomic(path, store=store) as draft:
        (adata.write_zarr if store else adata.write_h5ad)(draft)


def _least_bytes(adata: AnnData) -> int:
    """Bytes that matrices in memory take in a file, which other parts add to."""
    import numpy as np
    from scipy import sparse

    groups = (adata.layers, adata.obsm, adata.varm, adata.obsp, adata.varp)
    values = [adata.X, *(value for group in groups for value in group.values())]
    parts = [part for value in values for part in ((value.data, value.indices) if sparse.issparse(value) else (value,))]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
