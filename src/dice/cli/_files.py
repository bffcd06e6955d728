"""Read and write files of cells. An output is complete or absent."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from dice._errors import InputError
from dice._files import atomic, check_room, check_target, same_file

if TYPE_CHECKING:
    from anndata import AnnData

    from dice._data.store import Prior

SUFFIXES = (".h5ad", ".zarr")
#: Arguments of commands that are files.
PATHS = dict.fromkeys(("query", "reference", "cells", "label_map"), "input")
PATHS |= dict.fromkeys(("output", "trained", "report", "table", "checkpoint"), "output")


def check_paths(args: argparse.Namespace) -> None:
    """Check before the work that outputs can be written, are different files, and are not inputs."""
    values = {name: getattr(args, name, None) or [] for name in PATHS}
    named = [(name, path) for name, value in values.items() for path in (value if isinstance(value, list) else [value])]
    for (flag, path), (other, second) in combinations(named, 2):
        outputs = [name for name in (flag, other) if PATHS[name] == "output"]
        if not outputs or not same_file(path, second):
            continue
        if len(outputs) == 2:
            raise InputError(f"Two outputs, --{flag} and --{other}, are the file {str(path)!r}: name another for one.")
        if not getattr(args, "overwrite_input", False):
            raise InputError(
                f"The output --{other} {str(second)!r} is an input of the command and would be lost: name "
                "another file, or pass --overwrite-input."
            )
    for name, path in named:
        if name in ("report", "table") or (name, args.command) == ("output", "report"):
            check_target(path)
        elif name in ("output", "trained"):
            if Path(path).suffix not in SUFFIXES:
                raise InputError(f"The output {str(path)!r} is neither .h5ad nor .zarr: give it one of these endings.")
            check_target(path, store=Path(path).suffix == ".zarr")


def read(path: Path) -> AnnData:
    """Read a whole file into memory."""
    from dice._data import files  # torch and anndata load after the help pages

    return files.read(path)


def read_reference(path: Path, read: Callable[[Path], AnnData] = read) -> AnnData | Prior:
    """Read a reference with its cells, or a prior by name."""
    from dice import priors

    return priors.load(str(path)) if priors.is_name(path) else read(path)


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
