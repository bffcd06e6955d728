"""Read and write files of cells, and check the paths of a command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import dice
from dice._errors import InputError
from dice._files import atomic, check_room, check_target, same_file

if TYPE_CHECKING:
    from anndata import AnnData

    from dice._data.store import Prior

SUFFIXES = (".h5ad", ".zarr")
#: Arguments of commands that are files.
INPUTS = ("query", "reference", "cells", "label_map")
OUTPUTS = ("output", "trained", "report", "table", "checkpoint")


def check_paths(args: argparse.Namespace) -> None:
    """Check before the work that outputs can be written, are different files, and are not inputs."""
    inputs, outputs = _given(args, INPUTS), _given(args, OUTPUTS)
    for (flag, path), (other, second) in combinations(outputs, 2):
        if same_file(path, second):
            raise InputError(f"Two outputs, --{flag} and --{other}, are the file {str(path)!r}: name another for one.")
    for flag, path in outputs:
        is_input = any(same_file(dice.priors.file_of(source), path) for _, source in inputs)
        if is_input and not getattr(args, "overwrite_input", False):
            raise InputError(
                f"The output --{flag} {str(path)!r} is an input of the command and would be lost: name another file, "
                "or pass --overwrite-input."
            )
        is_store, is_cells = path.suffix == ".zarr", flag in ("output", "trained") and args.command != "report"
        if is_cells and path.suffix not in SUFFIXES:
            raise InputError(f"The output {str(path)!r} is neither .h5ad nor .zarr: give it one of these endings.")
        if flag != "checkpoint":
            check_target(path, store=is_store and is_cells)


def _given(args: argparse.Namespace, flags: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the files of a command with their flags. A flag may have several."""
    found: list[tuple[str, Path]] = []
    for flag in flags:
        value = getattr(args, flag, None) or []
        found += [(flag, Path(path)) for path in (value if isinstance(value, list) else [value])]
    return found


def read(path: Path) -> AnnData:
    """Read a whole file into memory."""
    from dice._data import files  # Loads anndata, which help pages do without.

    return files.read(path)


def read_reference(path: Path, read: Callable[[Path], AnnData] = read) -> AnnData | Prior:
    """Read a reference with its cells, or a prior by name."""
    return dice.priors.load(str(path)) if dice.priors.is_name(path) else read(path)


def write(adata: AnnData, path: Path) -> None:
    """Write an object to a file. Lazy arrays are written chunk by chunk."""
    store = path.suffix == ".zarr"
    if not store:  # A store is compressed, and raises an error itself if the disk is full.
        check_room(path, _least_bytes(adata))
    with atomic(path, store=store) as draft:
        (adata.write_zarr if store else adata.write_h5ad)(draft)


def _least_bytes(adata: AnnData) -> int:
    """Return the bytes that the matrices in memory take in a file, as a lower bound of its size."""
    import numpy as np
    from scipy import sparse

    groups = (adata.layers, adata.obsm, adata.varm, adata.obsp, adata.varp)
    values = [adata.X, *(value for group in groups for value in group.values())]
    parts = [part for value in values for part in ((value.data, value.indices) if sparse.issparse(value) else (value,))]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
