"""Files that are opened without being read: matrices stay lazy, and a stored prior is checked before it is read.

Anybody may have written the file of a prior. Only fields of the schema are looked at, and nothing is read before it is
known to be plain, small and inside the file: a file can link to itself without end, name other files, or unpack to more
than any memory holds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
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
from dice._errors import DiceError, InputError, PriorFormatError, SlotError
from dice._model import schema

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


#: AnnData's names for texts, numbers and arrays of them; everything else that it can store is refused.
_TEXTS, _NUMBERS = {"string", "string-array"}, {"array", "numeric-scalar"}
#: Ways of packing that only pack: a codec chosen by the file may do anything, even unpickle.
_HDF5_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_LZF, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
_ZARR_CODECS = {
    *("VLenUTF8", "VLenUTF8Codec", "BytesCodec", "Crc32cCodec", "Shuffle"),
    *("Blosc", "BloscCodec", "Zstd", "ZstdCodec", "GZip", "GzipCodec", "Zlib", "LZ4"),
}
#: Largest packed chunk that is opened, in bytes as unpacked: what it really unpacks to is at most 1,032 times that.
_MAX_PACKED = 2**20
#: Texts are read in pieces that cannot be larger than this, even if all of them are one and the same.
_PIECE = 2**28


def open_prior(path: str | os.PathLike[str], key: str) -> dict[str, Any]:
    """The raw fields of the prior in ``uns[key]`` of an .h5ad file or a .zarr folder; its cells stay on disk."""
    with open_group(path, "a saved prior", PriorFormatError) as group:
        if Path(path).is_dir():
            _refuse_symlinks(Path(path) / "uns" / key)
        return _read_prior(group, Path(path), key)


def _read_prior(group: Any, path: Path, key: str) -> dict[str, Any]:
    for name in ("uns", key):
        if name not in _names(group):
            raise SlotError(
                f"{str(path)!r} has no prior in .uns[{key!r}]: train one with dice.tl.train_prior and save it."
            )
        group = _child(group, name)
    if "format" not in _names(group):
        return {}
    version = read_elem(_checked(_child(group, "format"), "format", path))
    if not schema.fits(version, _names(group)):
        # The schema says what is wrong, without a look at the values.
        return dict.fromkeys(_names(group)) | {"format": version}
    leaves = dict(_leaves(group))
    for name, leaf in leaves.items():
        _checked(leaf, name, path)
    _check_total(list(leaves.values()), path)
    raw: dict[str, Any] = {name: {} for name in schema.TABLES if name in _names(group)}
    for name, leaf in leaves.items():
        table, _, entry = name.rpartition("/")
        (raw[table] if table else raw)[entry] = read_elem(leaf)
    return raw


def _names(group: Any) -> set[str]:
    """Names in a group, where there are not too many to look at; none in an array."""
    if hasattr(group, "shape"):
        return set()
    if len(group) > schema.MAX_ARRAYS:
        raise PriorFormatError(f"The stored prior has {len(group)} arrays in a group, more than any prior does.")
    return set(group)


def _child(group: Any, name: str) -> Any:
    """An entry of a group; in HDF5 a link may lead to another place or another file, which is not followed."""
    if isinstance(group, h5py.Group) and not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise PriorFormatError(f"The stored prior's {name!r} is a link to somewhere else: copy the file without links.")
    return group[name]


def _leaves(group: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of a prior by name: those of its tables are one level down, and nothing is deeper."""
    for name in sorted(_names(group)):
        child = _child(group, name)
        if name in schema.TABLES and hasattr(child, "shape"):
            raise PriorFormatError(f"The stored prior's {name!r} is not a table of arrays.")
        if name in schema.TABLES:
            yield from ((f"{name}/{entry}", _child(child, entry)) for entry in sorted(_names(child)))
        else:
            yield name, child


def _checked(leaf: Any, name: str, path: Path) -> Any:
    """An array whose reading stays inside of the file and within bounds."""
    encoding = leaf.attrs.get("encoding-type")
    allowed = _TEXTS if name in schema.TEXTS else _NUMBERS
    if not hasattr(leaf, "shape") or not isinstance(encoding, str) or encoding not in allowed:
        raise PriorFormatError(f"The stored prior's {name!r} is of kind {str(encoding)[:40]!r}, not {sorted(allowed)}.")
    if not (_plain_hdf5(leaf, path) if isinstance(leaf, h5py.Dataset) else _plain_zarr(leaf)):
        raise PriorFormatError(
            f"The stored prior's {name!r} is packed in a way that is not read from files, or kept elsewhere: write it "
            "again with dice.Prior.save."
        )
    return leaf


def _plain_hdf5(data: h5py.Dataset, path: Path) -> bool:
    """Whether a dataset is numbers or text inside of the file, packed by nothing but the usual filters."""
    settings = data.id.get_create_plist()
    filters = {settings.get_filter(index)[0] for index in range(settings.get_nfilters())}
    text = h5py.check_string_dtype(data.dtype) is not None
    if data.is_virtual or data.external or filters - _HDF5_FILTERS or not (text or data.dtype.kind in "fiu"):
        return False
    if filters:
        size = math.prod(data.chunks) * data.dtype.itemsize
        stored: list[int] = []
        data.id.chunk_iter(lambda chunk: stored.append(chunk.size))
        if size > _MAX_PACKED or max(stored, default=0) > 2 * size + 1024:
            return False
    return not text or _bounded_text(data, path.stat().st_size)


def _bounded_text(data: h5py.Dataset, file_size: int) -> bool:
    """Whether all texts together are small: many entries of an array may be the same large one."""
    if data.ndim != 1:
        return data.ndim == 0
    step, total = max(_PIECE // max(file_size, 1), 1), 0
    for start in range(0, min(len(data), schema.MAX_GENES + 1), step):
        total += sum(len(name) for name in data[start : start + step])
        if total > schema.MAX_NAMES:
            return False
    return True


def _plain_zarr(data: Any) -> bool:
    """Whether chunks are packed by nothing but the usual codecs, and so is the index where shards hold many of them."""
    codecs = (*data.filters, *data.compressors, *([data.serializer] if data.serializer is not None else []))
    index = chain.from_iterable(getattr(codec, "index_codecs", ()) for codec in getattr(data.metadata, "codecs", ()))
    return {type(codec).__name__ for codec in (*codecs, *index)} <= _ZARR_CODECS


def _check_total(leaves: list[Any], path: Path) -> None:
    """Refuse more than a prior can hold before any of it is read: a small file can unpack to anything."""
    # A whole chunk is unpacked for any part of it, and may be larger than the array; so may a shard of many chunks.
    shapes = [(a, (a.shape, a.chunks or (), getattr(a, "shards", None) or ())) for a in leaves]
    sizes = [max(map(math.prod, found)) * a.dtype.itemsize for a, found in shapes]
    if len(leaves) > schema.MAX_ARRAYS or sum(sizes) > schema.MAX_BYTES:
        raise PriorFormatError(
            f"{str(path)!r} claims to hold {sum(sizes) / 2**30:.1f} GB in {len(leaves)} arrays, "
            "more than any prior does."
        )


def _refuse_symlinks(folder: Path) -> None:
    """A folder may name files outside of it."""
    for count, place in enumerate(chain((folder, folder.parent), folder.rglob("*"))):
        if place.is_symlink() or count > 10 * schema.MAX_ARRAYS:
            raise PriorFormatError(f"{str(place)!r} is a link, or one file of too many: copy the folder without links.")
