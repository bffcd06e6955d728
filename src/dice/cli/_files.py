"""Cells in files: read whole, written whole or not at all."""

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


def check_output(path: Path) -> Path:
    """Check before the work that the output can be written."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"The output {str(path)!r} is neither .h5ad nor .zarr: give it one of these endings.")
    return check_target(path, store=path.suffix == ".zarr")


def check_paths(args: argparse.Namespace) -> None:
    """Refuse one file for two outputs, and an output that is an input, unless the user says so."""
    named = {name: path for name, path in vars(args).items() if isinstance(path, str | Path) and name in PATHS}
    outputs = {name: path for name, path in named.items() if PATHS[name] == "output"}
    for (flag, path), (other, second) in combinations(named.items(), 2):
        if not {flag, other} & outputs.keys() or not same_file(path, second):
            continue
        if {flag, other} <= outputs.keys():
            raise InputError(f"Two outputs, --{flag} and --{other}, are the file {str(path)!r}: name another for one.")
        if not getattr(args, "overwrite_input", False):
            output = flag if flag in outputs else other
            raise InputError(
                f"The output --{output} {str(outputs[output])!r} is an input of the command and would be lost: name "
                "another file, or pass --overwrite-input."
            )


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
