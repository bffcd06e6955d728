"""Read files of cells after a check of the whole file, and write stores of cells chunk by chunk.

A call that writes chunk by chunk can go on after it was killed: the folder ``cells.zarr.partial`` beside ``cells.zarr``
holds the store, temporary arrays, the arguments of the call, and an empty file for every finished chunk. A chunk
without this file is written again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import zarr
from anndata import AnnData
from anndata.experimental import read_elem_lazy
from anndata.io import read_elem, write_elem
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._arguments import said
from dice._data.door import LIMIT, Walk, opened, size_limit
from dice._data.read import Slot, names
from dice._data.sources import BLOCK_ENTRIES, check_positions
from dice._data.write import Slots
from dice._errors import InputError, PriorFormatError
from dice._files import atomic, refusals, remove, replace_store
from dice._types import Chunk

#: Mappings whose arrays stay on disk.
LAZY: tuple[Slot, ...] = ("layers", "obsm", "varm", "obsp", "varp")
CELLS = "an .h5ad file or a .zarr store"
#: Attributes of an array in a store of AnnData.
ENCODING: dict[str, Any] = {"encoding-type": "array", "encoding-version": "0.2.0"}
#: Folder of temporary arrays.
SCRATCH = "scratch"
#: Advice if the disk refuses.
GO_ON = "make room, or see to the rights, and repeat the call, which goes on where it was"


def read(path: str | os.PathLike[str]) -> AnnData:
    """Read an .h5ad file or a .zarr store into memory."""
    with opened(path, CELLS, InputError) as group:
        _check_cells(group, Path(path))
        if group.attrs.get("encoding-type") == "MuData":
            raise InputError(f"{said(str(path))} holds a MuData object: read it by mudata.read, and pass that.")
        # A store is read as it was walked: opened again, another of its descriptions might be taken.
        adata = ad.read_zarr(group) if Path(path).is_dir() else ad.read_h5ad(path)
    for matrix in _matrices(adata):
        if sparse.issparse(matrix):
            check_positions(matrix)
    return adata


def _matrices(adata: AnnData) -> Iterator[Any]:
    """Yield everything that may be a sparse matrix."""
    yield adata.X
    if adata.raw is not None:
        yield adata.raw.X
    for name in LAZY:
        yield from getattr(adata, name).values()


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


@dataclass(frozen=True)
class Draft:
    """The folder beside `output`. It is small enough to be sent to workers, who see the same disk."""

    output: Path
    n_cells: int
    chunk_size: int

    @property
    def folder(self) -> Path:
        return self.output.with_name(f"{self.output.name}.partial")

    def open(self, call: Mapping[str, Any], adata: AnnData) -> None:
        """Begin, or go on after an interrupted `call` with the same arguments; `adata` has the names."""
        text = json.dumps(call, sort_keys=True, indent=1)
        note = self.folder / "call.json"
        if note.exists():
            if note.read_text() != text:
                raise InputError(f"{str(self.folder)!r} belongs to another call: name another output, or delete it.")
            _log.info(f"Going on with {str(self.folder)!r}.")
            return
        kept = {entry.name for entry in self.folder.glob("[!.]*")} - {"finished", "store", SCRATCH}
        if kept or self.folder.is_file():
            raise InputError(f"{str(self.folder)!r} is in the way and was not made by dice: name another output.")
        remove(self.folder)  # Without a note, the call was killed before its first chunk.
        (self.folder / "finished").mkdir(parents=True)
        AnnData(obs=adata.obs[[]], var=adata.var[[]]).write_zarr(self.folder / "store")
        zarr.open_group(self.folder / SCRATCH, mode="w", zarr_format=2)
        with atomic(note) as draft:
            draft.write_text(text)

    def require(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> None:
        """Create an array (n_cells, *shape) in chunks of `chunk_size` cells, unless it exists."""
        folder, key = self._split(name)
        group = zarr.open_group(folder, mode="r+", use_consolidated=False)
        if key not in group:
            chunks = (max(min(self.chunk_size, self.n_cells), 1), *shape)
            group.create_array(key, shape=(self.n_cells, *shape), chunks=chunks, dtype=dtype, attributes=ENCODING)

    def array(self, name: str) -> Any:
        """Return an array by its path in the store, or below ``scratch``."""
        folder, key = self._split(name)
        return zarr.open_array(folder / key, mode="r+")

    def finished(self, phase: str) -> set[int]:
        """Return the first cells of the chunks that a phase has finished."""
        return {int(mark.name.split("-")[1]) for mark in (self.folder / "finished").glob(f"{phase}-*")}

    def mark(self, phase: str, start: int) -> None:
        (self.folder / "finished" / f"{phase}-{start}").touch()

    def write(self, name: str, value: Any) -> None:
        """Write or replace an element."""
        folder, key = self._split(name)
        write_elem(zarr.open_group(folder, mode="r+", use_consolidated=False), key, value)

    def complete(self, adata: AnnData, slots: Slots, *, copy_x: bool) -> None:
        """Write the rest of the results and of `adata`, and move the store to its place."""
        obs = adata.obs.drop(columns=list(slots.stale), errors="ignore")
        for name, values in slots.obs.items():
            obs[name] = values
        self.write("obs", obs)
        self.write("var", adata.var)
        self.write("uns", {**adata.uns, **slots.uns})
        for name in LAZY:
            for key in names(adata, name):
                ours = name == "obsm" and (key in slots.obsm or key in slots.stale)
                if not ours and (copy_x or name != "layers"):
                    self.write(f"{name}/{key}", getattr(adata, name)[key])
        if copy_x and adata.X is not None:
            self.write("X", adata.X)
        zarr.consolidate_metadata(self.folder / "store")
        with refusals(self.output, GO_ON):
            replace_store(self.folder / "store", self.output)
        shutil.rmtree(self.folder)

    def _split(self, name: str) -> tuple[Path, str]:
        scratch = name.startswith(f"{SCRATCH}/")
        return self.folder / (SCRATCH if scratch else "store"), name.removeprefix(f"{SCRATCH}/")


@dataclass(frozen=True)
class IntoDraft:
    """Writes the results of a function of a chunk to a draft, and marks the chunk as finished."""

    draft: Draft
    phase: str
    function: Callable[[Chunk, slice], Mapping[str, NDArray[Any]]]

    def __call__(self, chunk: Chunk, rows: slice) -> None:
        found = self.function(chunk, rows)
        with refusals(self.draft.output, GO_ON):
            for name, values in found.items():
                self.draft.array(name)[rows] = values
            self.draft.mark(self.phase, rows.start)


def in_chunks(adata: AnnData, rows: int, layer: str | None, counts_layer: str | None, batch_key: str | None) -> AnnData:
    """Return the query with lazy blocks of `rows` cells, so that each is one chunk of the store."""
    matrix = adata.X if layer is None else adata.layers.get(layer)
    if not hasattr(matrix, "rechunk") or len(matrix.chunks[0]) == 1 < len(matrix.chunks[1]):
        return adata
    obs = adata.obs[[batch_key] if batch_key in adata.obs else []]
    layers = {name: adata.layers[name] for name in (layer, counts_layer) if name in names(adata, "layers")}
    chunked = {name: x.rechunk({0: rows, 1: -1}) if hasattr(x, "rechunk") else x for name, x in layers.items()}
    x = matrix.rechunk({0: rows, 1: -1}) if layer is None else None
    return AnnData(X=x, obs=obs, var=adata.var, layers=chunked)


@contextmanager
def held(output: Path) -> Iterator[None]:
    """Keep other processes from writing to `output` within a block.

    The file system frees the lock of a killed process.
    """
    lock = output.with_name(f".{output.name}.lock")
    try:
        with FileLock(lock, blocking=False):
            try:
                yield
            finally:
                remove(lock)
    except Timeout as error:
        raise InputError(f"{str(output)!r} is being written by another process: name another output.") from error
