"""Read files of cells after a check of the whole file, and write them as a whole or not at all."""

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
from anndata import AnnData
from anndata.experimental import read_elem_lazy
from anndata.io import read_elem
from scipy import sparse

from dice._arguments import said
from dice._data.door import LIMIT, Walk, opened, size_limit
from dice._data.sources import BLOCK_ENTRIES, checked, is_lazy
from dice._errors import InputError, PriorFormatError
from dice._files import atomic, check_room

#: Mappings whose arrays stay on disk.
LAZY = ("layers", "obsm", "varm", "obsp", "varp")
CELLS = "an .h5ad file or a .zarr store"
#: Maximum size in bytes of a tree of labels.
LONGEST_TEXT = 2**26
#: Files by the names of the dask arrays that were made from them.
_opened: dict[str, Path] = {}


def read(path: str | os.PathLike[str]) -> AnnData:
    """Read an .h5ad file or a .zarr store into memory."""
    with opened(path, CELLS, InputError) as group:
        _check_cells(group, Path(path))
        if group.attrs.get("encoding-type") == "MuData":
            raise InputError(f"{said(str(path))} holds a MuData object: read it with mudata.read and pass the object.")
        # Read the store that was checked: opened again, zarr might take another of its descriptions.
        adata = ad.read_zarr(group) if Path(path).is_dir() else ad.read_h5ad(path)
    for matrix in _matrices(adata):
        checked(matrix)
    return adata


def _matrices(adata: AnnData) -> Iterator[Any]:
    """Yield ``X``, ``.raw.X`` and all arrays in the slots of `LAZY`."""
    yield adata.X
    if adata.raw is not None:
        yield adata.raw.X
    for name in LAZY:
        yield from getattr(adata, name).values()


def _check_cells(group: Any, path: Path, on_disk: tuple[str, ...] = ()) -> None:
    """Check a file of cells without matrices that stay `on_disk`. Priors in it are checked more strictly."""
    Walk(path, size_limit(path), InputError, on_disk=on_disk).check(group)
    uns = group.get("uns", {})
    for name in uns:
        if not hasattr(uns[name], "shape") and "format" in uns[name]:
            Walk(path, LIMIT, PriorFormatError, strict=True).check(uns[name], name)


def read_lazy(path: str | os.PathLike[str], *, chunk_size: int | None = None) -> AnnData:
    """Open an .h5ad file or a .zarr store as dask arrays of `chunk_size` cells, without ``.raw``.

    A matrix that is stored by columns is chunked along genes.
    """
    try:
        import dask.array  # noqa: F401
    except ImportError as error:
        raise InputError("Reading files in chunks needs dask: install it with pip install 'scdice[dask]'.") from error
    with opened(path, CELLS, InputError) as group:
        _check_cells(group, Path(path), ("X", "raw", *LAZY))
        obs, var = read_elem(group["obs"]), read_elem(group["var"])
        rows = chunk_size or max(BLOCK_ENTRIES // max(len(var), 1), 256)
        lazy = {
            name: {key: _lazy(group[name][key], rows, len(var if name[:3] == "var" else obs)) for key in group[name]}
            for name in LAZY
            if name in group
        }
        x = _lazy(group["X"], rows, len(obs)) if "X" in group else None
        adata = AnnData(x, obs=obs, var=var, uns=read_elem(group["uns"]) if "uns" in group else {}, **lazy)
    _opened.update({matrix.name: Path(path).resolve() for matrix in _matrices(adata) if is_lazy(matrix)})
    return adata


def content_of(path: str) -> str:
    """Return the text of a tree of labels, which may be packed by gzip. A very long text is refused."""
    if not Path(path).is_file():  # Reading a pipe would never end.
        raise InputError(f"There is no file {path!r}: pass a dict from child to parent, or a .csv or .obo file.")
    try:
        with gzip.open(path) if path.endswith(".gz") else Path(path).open("rb") as file:
            content = file.read(LONGEST_TEXT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path!r} cannot be read: {error}.") from error
    if len(content) > LONGEST_TEXT:
        raise InputError(f"{path!r} holds more than {LONGEST_TEXT / 2**20:.0f} MB of text: pass a smaller file.")
    return content.decode("utf-8-sig", "replace")


def files_of(*sources: Any) -> list[Any]:
    """Return the files that arguments refer to: as a path, as the name of a prior, or as a backed or lazy object."""
    from dice import priors

    found: list[Any] = []
    for source in sources:
        if isinstance(source, AnnData):
            steps = [name for matrix in _matrices(source) if is_lazy(matrix) for name in matrix.dask.layers]
            found += [source.filename, *(_opened[name] for name in steps if name in _opened)]
        elif isinstance(source, str | os.PathLike):
            found.append(priors.file_of(source))
    return found


def _lazy(element: Any, rows: int, length: int) -> Any:
    """Read an element. Arrays of this length become dask arrays, tables and scalars are read into memory."""
    kind = element.attrs.get("encoding-type", "")
    if kind in ("csr_matrix", "csc_matrix"):
        shape = tuple(int(size) for size in element.attrs["shape"])
        pointers = element["indptr"].shape
        _check_shape(element, shape[0] == length and pointers == (shape[kind == "csc_matrix"] + 1,))
        if not shape[0]:
            return sparse.csr_matrix((0, shape[1]), dtype=np.float32)  # anndata 0.12.0 cannot cut it
        chunks = (min(rows, shape[0]), shape[1])
        # Columns that would fill a block if they were dense.
        columns = min(max(BLOCK_ENTRIES // shape[0], 1), max(shape[1], 1))
        return read_elem_lazy(element, chunks=chunks if kind == "csr_matrix" else (shape[0], columns))
    if kind == "array" and element.ndim and np.issubdtype(element.dtype, np.number):
        _check_shape(element, element.shape[0] == length)
        return read_elem_lazy(element, chunks=(min(rows, max(element.shape[0], 1)), *element.shape[1:]))
    return read_elem(element)


def _check_shape(element: Any, fits: bool) -> None:
    """Refuse a matrix that does not fit its file before it is divided into chunks, which could be too many."""
    if not fits:
        raise InputError(f"The matrix {element.name!r} has a shape that does not fit its file: get the file again.")


def write_file(adata: AnnData, path: str | os.PathLike[str]) -> None:
    """Write an object to an .h5ad file or a .zarr store. Lazy arrays are written chunk by chunk."""
    store = Path(path).suffix == ".zarr"
    if not store:  # A store is compressed, and raises an error itself if the disk is full.
        check_room(path, _least_bytes(adata))
    with atomic(path, store=store) as draft:
        (adata.write_zarr if store else adata.write_h5ad)(draft)


def _least_bytes(adata: AnnData) -> int:
    """Return a lower bound of the size of a file: the bytes of the matrices in memory."""
    parts = [part for m in _matrices(adata) for part in ((m.data, m.indices) if sparse.issparse(m) else (m,))]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
