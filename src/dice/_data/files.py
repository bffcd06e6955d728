"""Read files of cells and priors, after a check of the whole file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
from anndata import AnnData
from anndata.experimental import read_elem_lazy
from anndata.io import read_elem

from dice._arguments import said
from dice._data.door import LIMIT, Walk, child, opened, size_limit
from dice._data.read import Slot
from dice._data.sources import BLOCK_ENTRIES
from dice._errors import InputError, PriorFormatError, SlotError
from dice._model import schema

#: Mappings whose arrays stay on disk.
LAZY: tuple[Slot, ...] = ("layers", "obsm", "varm", "obsp", "varp")
#: Encodings of texts, numbers and arrays of them. A prior holds nothing else.
_TEXTS, _NUMBERS = {"string", "string-array"}, {"array", "numeric-scalar"}
CELLS = "an .h5ad file or a .zarr store"


def read(path: str | os.PathLike[str]) -> AnnData:
    """Read an .h5ad file or a .zarr store into memory."""
    with opened(path, CELLS, InputError) as group:
        _check_cells(group, Path(path))
        if group.attrs.get("encoding-type") == "MuData":
            raise InputError(f"{said(str(path))} holds a MuData object: read it by mudata.read, and pass that.")
        # A store is read as it was walked: opened again, another of its descriptions might be taken.
        return ad.read_zarr(group) if Path(path).is_dir() else ad.read_h5ad(path)


def _check_cells(group: Any, path: Path, on_disk: tuple[str, ...] = ()) -> None:
    """Check a file of cells, except for slots that stay `on_disk`, and more strictly the priors in it."""
    Walk(path, size_limit(path), InputError, on_disk=on_disk).check(group)
    uns = group.get("uns", {})
    for name in uns:
        if not hasattr(uns[name], "shape") and "format" in uns[name]:
            Walk(path, LIMIT, PriorFormatError, strict=True).check(uns[name], name)


def read_lazy(path: str | os.PathLike[str], *, chunk_size: int | None = None) -> AnnData:
    """Open an .h5ad file or a .zarr store as dask arrays of `chunk_size` cells, without ``.raw``.

    A matrix that is stored by columns is chunked along genes.
    """
    check_dask()
    with opened(path, CELLS, InputError) as group:
        _check_cells(group, Path(path), ("X", "raw", *LAZY))
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
    """Raise an error if dask, which reads and writes chunk by chunk, is not installed."""
    try:
        import dask.array  # noqa: F401
    except ImportError as error:
        raise InputError("Files are streamed by dask: install it with pip install 'scdice[dask]'.") from error


def _lazy(element: Any, rows: int) -> Any:
    """Return an element as a dask array; tables and scalars in memory."""
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


def open_prior(path: str | os.PathLike[str], key: str, max_bytes: int = LIMIT) -> dict[str, Any]:
    """Read the fields of the prior in ``uns[key]`` of an .h5ad file or a .zarr folder, without the cells."""
    with opened(path, "a saved prior", PriorFormatError) as group:
        for name in ("uns", key):
            if hasattr(group, "shape") or name not in group:
                raise SlotError(f"{str(path)!r} has no prior in .uns[{key!r}]: call dice.tl.train_prior.")
            group = child(group, name, PriorFormatError)
        Walk(Path(path), max_bytes, PriorFormatError, strict=True).check(group)
        return _read_prior(group)


def _read_prior(group: Any) -> dict[str, Any]:
    if hasattr(group, "shape") or "format" not in group:
        return {}
    version = read_elem(_of_kind(group["format"], "format"))
    if not schema.fits(version, set(group)):
        # The schema raises the error, without the values.
        return dict.fromkeys(group) | {"format": version}
    raw: dict[str, Any] = {}
    for name in group:
        if name not in schema.TABLES:
            raw[name] = read_elem(_of_kind(group[name], name))
        elif hasattr(group[name], "shape"):
            raise PriorFormatError(f"The stored prior's {name!r} is not a table of arrays.")
        else:
            raw[name] = {entry: read_elem(_of_kind(group[name][entry], f"{name}/{entry}")) for entry in group[name]}
    return raw


def _of_kind(leaf: Any, name: str) -> Any:
    """Return an array of text or numbers. anndata could read more, which a prior must not hold."""
    allowed = _TEXTS if name in schema.TEXTS else _NUMBERS
    encoding = None if getattr(leaf, "shape", None) is None else leaf.attrs.get("encoding-type")
    if not isinstance(encoding, str) or encoding not in allowed:
        raise PriorFormatError(f"The stored prior's {name!r} is of kind {str(encoding)[:40]!r}, not {sorted(allowed)}.")
    return leaf
