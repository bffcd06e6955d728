"""Check everything in a file before any of it is read.

Files may come from anybody. A file can hold endless links to itself, name other files, unpack to more than the memory,
or name a codec that runs code. :class:`Walk` reads names, shapes and types only, and adds up the memory that reading
would take.
"""

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import h5py
import numpy as np
import zarr

from dice._data import lengths
from dice._errors import DiceError, InputError

#: Maximum size in bytes of a prior, unless the caller allows more. A prior has a few megabytes.
LIMIT = 2**28
#: Largest ratio of unpacked to stored bytes of a file. It was 2 to 6 in ten data sets.
MOST_PACKED = 100
#: Maximum number of groups and arrays in a file, and in a prior (about a hundred are usual); maximum depth of nesting.
NODES, DEPTH = (10_000, 1_000), 16
#: A text of n characters takes up to 4 n bytes in Python, and 64 more for the object.
PER_CHARACTER, PER_TEXT = 4, 64
#: Bytes that count for every chunk, also if it is not stored: each takes memory and time of HDF5 and zarr.
PER_CHUNK = 2**15
#: Filters and codecs that only compress. HDF5 filters are in the order of their use. Other codecs may run code.
LZF = h5py.h5z.FILTER_LZF
PACKED = {h5py.h5z.FILTER_DEFLATE: "zlib", LZF: "lzf"}
HDF5_FILTERS = (h5py.h5z.FILTER_SHUFFLE, *PACKED, h5py.h5z.FILTER_FLETCHER32)
ZARR_CODECS = {
    *("VLenUTF8", "VLenUTF8Codec", "BytesCodec", "Crc32cCodec", "Shuffle"),
    *("Blosc", "BloscCodec", "Zstd", "ZstdCodec", "GZip", "GzipCodec", "Zlib", "LZ4"),
}
#: Maximum size in bytes of all files that describe the arrays of a zarr store.
LONGEST_DESCRIPTION = 2**22


@contextmanager
def opened(path: str | os.PathLike[str], what: str, failure: type[DiceError]) -> Iterator[Any]:
    """Yield the root of an .h5ad file or a .zarr folder. Errors of other packages become errors of class `failure`."""
    file = Path(path)
    if not file.is_file() and not file.is_dir():
        raise InputError(f"There is no file {str(path)!r}: pass the path of {what}.")
    try:
        if file.is_dir():
            _check_folder(file, failure)
            yield zarr.open_group(file, mode="r")
        else:
            with h5py.File(file, "r") as group:
                yield group
    except DiceError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise failure(f"{str(path)!r} cannot be read as .h5ad or .zarr: {reason}.") from error


def _check_folder(folder: Path, failure: type[DiceError]) -> None:
    """Refuse links, pipes and devices in a store, and descriptions of arrays that are too large."""
    size = 0
    for place, folders, files in os.walk(folder):
        for name in chain(folders, files):
            file = Path(place, name)
            if file.is_symlink():
                raise failure(f"{str(file)!r} is a link to somewhere else: copy the folder without links.")
            if not file.is_file() and not file.is_dir():  # Reading a pipe would never end.
                raise failure(f"{str(file)!r} is neither a file nor a folder: get a new copy of the store.")
            size += file.stat().st_size if name in lengths.DESCRIPTIONS else 0
            if size > LONGEST_DESCRIPTION:
                raise failure(f"{str(file)!r} is too large to describe arrays: get a new copy of the store.")


def size_limit(path: Path) -> int:
    """Return how many bytes a file of cells may unpack to. A file that unpacks to more is refused."""
    files = path.rglob("*") if path.is_dir() else [path]
    return max(LIMIT, MOST_PACKED * sum(file.stat().st_size for file in files if file.is_file()))


@dataclass
class Walk:
    """Walk through a file, add up the memory that reading it would take, and refuse unsafe entries.

    Matrices that stay `on_disk` (names of slots) need no memory and are not added up. With `strict`, for priors,
    fewer arrays and only small chunks are allowed.
    """

    path: Path
    limit: int
    failure: type[DiceError]
    strict: bool = False
    on_disk: tuple[str, ...] = ()
    n_nodes: int = field(default=0, init=False)
    n_bytes: int = field(default=0, init=False)

    def check(self, node: Any, name: str = "", depth: int = 0, holder: Any = None) -> None:
        """Check a group or an array inside the group `holder`, and everything below it."""
        self.n_nodes += 1
        is_array = isinstance(node, h5py.Dataset | zarr.Array)
        if not is_array and not isinstance(node, h5py.Group | zarr.Group):
            self._refuse(name, "is neither a group nor an array")
        if self.n_nodes + (0 if is_array else len(node)) > NODES[self.strict] or depth > DEPTH:
            self._refuse(name, f"exceeds the limits of {NODES[self.strict]:,} arrays and {DEPTH} nested groups")
        if is_hdf5 := isinstance(node, h5py.Dataset | h5py.Group):
            self._add(name, self._measured(lengths.attribute_bytes, node, name))
        if _refers_away(node, holder, self.failure):
            self._refuse(name, "refers to something that is not its categories")
        if is_array:
            stays = self._stays(node, name, holder)
            self._add(name, 0 if stays else _declared(node))
            if not (self._plain_hdf5(node, stays) if is_hdf5 else _plain_zarr(node)):
                self._refuse(name, "has an unsupported compression or type, or is stored in another file")
            if not stays and (not is_hdf5 or _is_long_text(node.dtype)):
                measure = lengths.text_bytes if is_hdf5 else lengths.zarr_bytes
                self._add(name, PER_CHARACTER * self._measured(measure, node, name))
            return
        if len(np.ravel(node.attrs.get("column-order", ()))) > len(node):  # Each is read, also twice.
            self._refuse(name, "names more columns than it has")
        for key in node:
            self.check(child(node, key, self.failure), f"{name}/{key}" if name else key, depth + 1, node)

    def _stays(self, data: Any, name: str, holder: Any) -> bool:
        """Return whether a lazy reader leaves an array on disk: a dense matrix, or the entries of a sparse one."""
        slot, *keys = name.split("/")
        if slot not in self.on_disk or slot == "raw":  # Raw expression is not read at all.
            return slot in self.on_disk
        depth = int(slot != "X")
        if holder.attrs.get("encoding-type") in ("csr_matrix", "csc_matrix"):
            return len(keys) == depth + 1 and keys[-1] != "indptr"
        return len(keys) == depth and data.attrs.get("encoding-type") == "array" and data.dtype.kind in "fiuc"

    def _add(self, name: str, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        if self.n_bytes > self.limit:
            size, limit = (f"{number / 2**20:,.0f} MB" for number in (self.n_bytes, self.limit))
            self._refuse(name, f"increases the unpacked size to {size}, but the limit is {limit}")

    def _refuse(self, name: str, problem: str) -> NoReturn:
        failure = self.failure
        raise failure(
            f"{str(self.path)!r} is not read, because {name[:80]!r} {problem}: get the file from its source again."
        )

    def _measured(self, measure: Callable[[Any, Path], int], node: Any, name: str) -> int:
        try:
            return measure(node, self.path)
        except (lengths.UnusualFileError, struct.error, zlib.error, IndexError):
            self._refuse(name, "has an unsupported layout")

    def _plain_hdf5(self, data: h5py.Dataset, stays: bool) -> bool:
        """Return whether a dataset is numbers or text inside the file, packed only by common filters.

        Chunks are unpacked to check their size, unless the dataset `stays` on disk.
        """
        plist = data.id.get_create_plist()
        filters = [plist.get_filter(index)[0] for index in range(plist.get_nfilters())]
        # In this order, each at most once: a chunk that is packed twice unpacks to a million times its size.
        usual = filters == [one for one in HDF5_FILTERS if one in filters] and not {*PACKED} <= {*filters}
        if data.is_virtual or data.external or not usual or not _is_plain(data.dtype):
            return False
        if not filters:
            return True
        size = math.prod(data.chunks) * (lengths.RECORD.itemsize if _is_long_text(data.dtype) else data.dtype.itemsize)
        stored: list[Any] = []
        data.id.chunk_iter(stored.append)
        if any(chunk.size > 2 * size + 1024 for chunk in stored) or (self.strict and size > 2**20):
            return False
        kind = next((one for one in PACKED if one in filters and not stays), None)
        if kind is None or (kind == LZF and not self.strict):  # Counting the unpacked bytes of LZF is slow.
            return True
        used = [chunk for chunk in stored if not chunk.filter_mask >> filters.index(kind) & 1]
        chunks = (data.id.read_direct_chunk(chunk.chunk_offset)[1] for chunk in used)
        return all(lengths.unpacked_bytes(PACKED[kind], chunk, size) <= size for chunk in chunks)


def check_archive(path: Path) -> None:
    """Refuse an .npz file whose arrays would be larger than any checkpoint of a training."""
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > 4 * LIMIT:
        raise InputError(f"{str(path)!r} would unpack to {size / 2**20:,.0f} MB, more than any checkpoint: delete it.")


def child(group: Any, name: str, failure: type[DiceError]) -> Any:
    """Return an entry of a group. Links of HDF5 to another place or another file are refused."""
    if isinstance(group, h5py.Group) and not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise failure(f"The file is not read, because {name!r} is a link to somewhere else: copy it without links.")
    return group[name]


def _refers_away(node: Any, holder: Any, failure: type[DiceError]) -> bool:
    """Return whether an attribute refers to anything but the categories of a column, as AnnData 0.7 stored them.

    A reference can lead to an array without a name, and a text to a matrix that stays on disk: the walk counts neither.
    """
    is_hdf5, name = isinstance(node, h5py.Dataset | h5py.Group), node.name.rpartition("/")[2]
    references = [
        key for key in node.attrs if is_hdf5 and h5py.check_ref_dtype(node.attrs.get_id(key).dtype) is not None
    ]
    if "categories" not in node.attrs or holder is None or "__categories" not in set(holder):
        return bool(references) or "categories" in node.attrs
    target = node.attrs["categories"]
    if not is_hdf5:
        return bool(target != f"__categories/{name}")
    categories = child(child(holder, "__categories", failure), name, failure)
    return references != ["categories"] or not isinstance(target, h5py.Reference) or node.file[target] != categories


def _is_long_text(dtype: Any) -> bool:
    """Return whether entries are texts of variable length."""
    info = h5py.check_string_dtype(dtype)
    return info is not None and info.length is None


def _is_plain(dtype: Any) -> bool:
    """Return whether entries are numbers, texts, or records of these."""
    if dtype.fields:
        return all(_is_plain(entry[0]) and not _is_long_text(entry[0]) for entry in dtype.fields.values())
    return dtype.kind in "fiubc" or h5py.check_string_dtype(dtype) is not None


def _declared(data: Any) -> int:
    """Return the bytes that reading an array takes. Chunks are unpacked whole, and may be larger than the array."""
    shape, chunk = data.shape or (), data.chunks or ()
    shapes = [shape, chunk, getattr(data, "shards", None) or ()]
    size = max(map(math.prod, shapes)) if data.shape is not None else 0
    n_chunks = math.prod(-(-n // max(width, 1)) for n, width in zip(shape, chunk, strict=True)) if chunk else 0
    text = data.dtype.kind in "SUOT"
    return size * ((PER_CHARACTER if text else 1) * data.dtype.itemsize + PER_TEXT * text) + PER_CHUNK * n_chunks


def _plain_zarr(data: Any) -> bool:
    """Return whether chunks and the index of shards use only common codecs."""
    codecs = (*data.filters, *data.compressors, *([data.serializer] if data.serializer is not None else []))
    index = chain.from_iterable(getattr(codec, "index_codecs", ()) for codec in getattr(data.metadata, "codecs", ()))
    names = {type(codec).__name__ for codec in (*codecs, *index)}
    return names <= ZARR_CODECS and (data.dtype.kind in "fiubcSUT" or bool(names & {"VLenUTF8", "VLenUTF8Codec"}))
