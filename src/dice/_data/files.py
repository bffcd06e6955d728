"""Files of cells that are opened without being read: matrices lazy, annotations in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from anndata import AnnData
from anndata.experimental import read_elem_lazy
from anndata.io import read_elem

from dice._data.read import Slot
from dice._data.sources import BLOCK_ENTRIES
from dice._errors import DiceError, InputError

#: Mappings whose arrays stay on disk.
LAZY: tuple[Slot, ...] = ("layers", "obsm", "varm", "obsp", "varp")


def read_lazy(path: str | os.PathLike[str], *, chunk_size: int | None = None) -> AnnData:
    """Cells of an .h5ad file or a .zarr store as dask arrays of `chunk_size` cells; ``.raw`` is left out.

    A matrix that is stored by columns is cut along genes.
    """
    check_dask()
    with open_group(path, "an .h5ad file or a .zarr store", InputError) as group:
        n_vars = group["var"][group["var"].attrs["_index"]].shape[0]
        rows = chunk_size or max(BLOCK_ENTRIES // max(n_vars, 1), 256)
        mappings = {name: {key: _lazy(group[name][key], rows) for key in group[name]} for name in LAZY if name in group}
        return AnnData(
            X=_lazy(group["X"], rows) if "X" in group else None,
            obs=read_elem(group["obs"]),
            var=read_elem(group["var"]),
            uns=read_elem(group["uns"]) if "uns" in group else {},
            **mappings,
        )


def check_dask() -> None:
    """What reads and writes chunk by chunk needs dask, which is optional."""
    try:
        import dask.array  # noqa: F401
    except ImportError as error:
        raise InputError("Files are streamed by dask: install it with pip install 'scdice[dask]'.") from error


def _lazy(element: Any, rows: int) -> Any:
    """An element as a dask array, or in memory where it is a table or a scalar."""
    kind = element.attrs.get("encoding-type", "")
    if kind in ("csr_matrix", "csc_matrix"):
        shape = tuple(int(size) for size in element.attrs["shape"])
        if not shape[0]:
            return read_elem(element)  # anndata 0.12.0 cannot cut a matrix without cells
        chunks = (min(rows, shape[0]), shape[1])
        # Columns that would fill a block if they were dense.
        columns = min(max(BLOCK_ENTRIES // shape[0], 1), max(shape[1], 1))
        return read_elem_lazy(element, chunks=chunks if kind == "csr_matrix" else (shape[0], columns))
    if kind == "array" and element.ndim and np.issubdtype(element.dtype, np.number):
        return read_elem_lazy(element, chunks=(min(rows, max(element.shape[0], 1)), *element.shape[1:]))
    return read_elem(element)


@contextmanager
def open_group(path: str | os.PathLike[str], what: str, failure: type[DiceError]) -> Iterator[Any]:
    """The root of an .h5ad file or a .zarr folder; whatever goes wrong in other packages is one sentence."""
    file = Path(path)
    if not file.is_file() and not file.is_dir():
        raise InputError(f"There is no file {str(path)!r}: pass the path of {what}.")
    try:
        if file.is_dir():
            yield zarr.open_group(file, mode="r")
        else:
            with h5py.File(file, "r") as group:
                yield group
    except DiceError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise failure(f"{str(path)!r} cannot be read as .h5ad or .zarr: {reason}.") from error
