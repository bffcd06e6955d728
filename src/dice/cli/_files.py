"""Cells in files: read whole, written whole or not at all."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dice._errors import InputError
from dice._files import atomic, check_target

if TYPE_CHECKING:
    from anndata import AnnData

SUFFIXES = (".h5ad", ".zarr")


def add_input(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(name, type=Path, help=f"{text} (.h5ad or .zarr)")


def add_output(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help=f"{text} (.h5ad or .zarr); what is there is replaced, once the new file is whole",
    )


def check_output(path: Path) -> Path:
    """Find out before the work, not after it, that there is no way to write."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"The output {str(path)!r} is neither .h5ad nor .zarr: give it one of these endings.")
    return check_target(path, store=path.suffix == ".zarr")


def read(path: Path) -> AnnData:
    """All of a file in memory."""
    import anndata as ad

    if not path.exists():
        raise InputError(f"There is no file {str(path)!r}: check its name and folder.")
    try:
        return ad.read_zarr(path) if path.is_dir() else ad.read_h5ad(path)
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{str(path)!r} cannot be read as .h5ad or .zarr: {text}.") from error


def write(adata: AnnData, path: Path) -> None:
    """Write all of an object; lazy arrays in it are streamed."""
    store = path.suffix == ".zarr"
    with atomic(path, store=store) as draft:
        (adata.write_zarr if store else adata.write_h5ad)(draft)
