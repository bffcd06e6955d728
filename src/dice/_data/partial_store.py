"""Write a store of cells chunk by chunk, so that a killed call can go on.

The folder ``cells.zarr.partial`` beside ``cells.zarr`` holds the store, temporary arrays, the arguments of the call,
and an empty file for every finished chunk. A chunk without this file is written again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zarr
from anndata import AnnData
from anndata.io import write_elem
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from dice import _log
from dice._data.files import LAZY
from dice._data.read import names
from dice._data.write import Slots
from dice._errors import InputError
from dice._files import atomic, refusals, remove, replace_store
from dice._types import Chunk

#: Attributes of an array in a store of AnnData.
ENCODING: dict[str, Any] = {"encoding-type": "array", "encoding-version": "0.2.0"}
#: Folder of temporary arrays.
SCRATCH = "scratch"
#: Advice if the disk refuses.
GO_ON = "make room, or see to the rights, and repeat the call, which goes on where it was"


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
        self.close()

    def close(self) -> None:
        """Move the finished store to its place."""
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
