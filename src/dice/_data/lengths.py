"""Read the lengths of texts and of packed chunks from the bytes of a file.

Libraries allocate the length that a file states before they read the text, and unpack a chunk to its end, however long
it becomes. HDF5 stores a text of variable length as a record of 16 bytes: its length, and its place in the file.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
from zarr.codecs import ShardingCodec

#: HDF5 types of header messages: an attribute, a continuation, and attributes stored elsewhere.
ATTRIBUTE, CONTINUATION, IN_HEAP = 0x0C, 0x10, 0x15
#: HDF5 type classes with values in the message itself (such as numbers and texts), and that of variable lengths.
INSIDE, VARIABLE = (0, 1, 3, 4, 5, 7, 8), 9
#: Maximum number of blocks of header messages of one object.
MOST_BLOCKS = 1000
RECORD = np.dtype([("length", "<u4"), ("place", "V12")])
#: Codecs that compress, as numcodecs names them, and files that describe a zarr store.
PACKERS = ("blosc", "gzip", "lz4", "zlib", "zstd")
DESCRIPTIONS = {".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"}
#: Maximum bytes of the texts in one chunk, and bytes allowed beside the values of a chunk, such as its checksum.
LONGEST_TEXTS, BESIDE = 2**28, 1024


class UnusualFileError(ValueError):
    """The file has a layout that no package of the field writes."""


def attribute_bytes(node: h5py.Dataset | h5py.Group, path: Path) -> int:
    """Return the bytes that reading all attributes of a group or a dataset takes."""
    if node.file.userblock_size or node.file.id.get_create_plist().get_sizes() != (8, 8):
        raise UnusualFileError
    with path.open("rb") as stream:
        return sum(_attribute(body) for body in _messages(stream, h5py.h5o.get_info(node.id).addr))


def _messages(stream: Any, address: int) -> Iterator[bytes]:
    """Yield the attributes in the header of an object, as bytes."""
    first = _read(stream, address, 64)
    if first[:4] == b"OHDR":
        flags = first[5]
        start = 6 + 16 * bool(flags & 0x20) + 4 * bool(flags & 0x10)
        width = 1 << (flags & 3)
        blocks = [(address + start + width, int.from_bytes(first[start : start + width], "little"))]
        head, trim = struct.Struct("<BHB2x" if flags & 4 else "<BHB"), 4
    elif first[0] == 1:
        blocks = [(address + 16, struct.unpack_from("<I", first, 8)[0])]
        head, trim = struct.Struct("<HHB3x"), 0
    else:
        raise UnusualFileError
    for number, (place, size) in enumerate(blocks):
        if number > MOST_BLOCKS or size > 2**24:
            raise UnusualFileError
        block, at = _read(stream, place, size), 0
        while at + head.size <= len(block):
            kind, length, flags = head.unpack_from(block, at)
            body, at = block[at + head.size : at + head.size + length], at + head.size + length
            if kind == CONTINUATION:
                more, n_bytes = struct.unpack_from("<QQ", body)
                blocks.append((more + trim, n_bytes - 2 * trim))
            elif kind == IN_HEAP and body[-16:-8] != b"\xff" * 8 and len(body) >= 18:
                raise UnusualFileError
            elif kind == ATTRIBUTE:
                if flags & 2:
                    raise UnusualFileError
                yield body


def _read(stream: Any, place: int, size: int) -> bytes:
    stream.seek(place)
    return bytes(stream.read(size))


def _attribute(body: bytes) -> int:
    """Return the bytes that reading one attribute takes."""
    version, *sizes = struct.unpack_from("<BxHHH", body)
    if version not in (1, 2, 3) or (version > 1 and body[1] & 3):
        raise UnusualFileError
    name, dtype, space = (size + -size % 8 for size in sizes) if version == 1 else sizes
    start = 8 + (version == 3) + name
    kind, is_text = body[start] & 15, body[start + 1] & 15 == 1
    if kind in INSIDE:
        return len(body)
    if kind != VARIABLE or not is_text:
        raise UnusualFileError
    records = body[start + dtype + space :]
    return int(np.frombuffer(records[: len(records) // 16 * 16], RECORD)["length"].sum(dtype=np.int64)) + len(body)


def text_bytes(data: h5py.Dataset, path: Path) -> int:
    """Return the bytes of all texts of variable length in a dataset."""
    # A fill text takes its length again for every entry that is not stored.
    filled = data.size and data.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    if data.chunks is None:
        offset = data.id.get_offset()
        if offset is None:
            if data.id.get_storage_size() or filled:
                raise UnusualFileError
            return 0
        records = np.fromfile(path, RECORD, count=data.size, offset=offset)
        return int(records["length"].sum(dtype=np.int64))
    packing = {"shuffle": data.shuffle, "compression": data.compression, "fletcher32": data.fletcher32}
    packing = {name: value for name, value in packing.items() if value}  # In the order of the bits of a mask.
    chunks: list[tuple[int, ...]] = []
    data.id.chunk_iter(lambda chunk: chunks.append(chunk.chunk_offset))
    if filled and len(chunks) < math.prod(-(-n // size) for n, size in zip(data.shape, data.chunks, strict=True)):
        raise UnusualFileError
    # In a copy that is declared as bytes, h5py unpacks the records instead of the texts.
    with h5py.File("records", "w", driver="core", backing_store=False) as memory:
        total = 0
        for place in chunks:
            skipped, packed = data.id.read_direct_chunk(place)
            used = {name: value for bit, (name, value) in enumerate(packing.items()) if not skipped >> bit & 1}
            if "shuffle" in used:  # HDF5 does not shuffle texts, but a file may claim it.
                raise UnusualFileError
            twin = memory.create_dataset(None, data.chunks, "V16", chunks=data.chunks, **used)
            twin.id.write_direct_chunk((0,) * data.ndim, packed)
            total += int(twin[()].view(RECORD)["length"].sum(dtype=np.int64))
    return total


def unpacked_bytes(kind: str, packed: bytes, most: int) -> int:
    """Return the unpacked size of a chunk in bytes. Deflated chunks do not state it, so up to `most` is unpacked."""
    stated = {
        "": len(packed),
        "blosc": int.from_bytes(packed[4:8], "little"),
        "lz4": int.from_bytes(packed[:4], "little"),
    }
    if kind in stated:
        return stated[kind]
    if kind in ("lzf", "zstd"):
        return _zstd_bytes(packed) if kind == "zstd" else _lzf_bytes(packed, most)
    stream = zlib.decompressobj(wbits=47)
    size = len(stream.decompress(packed, most + 1))
    return size if len(stream.unused_data) <= 4 else most + 1  # 4 bytes of a checksum, or another stream


def _lzf_bytes(packed: bytes, most: int) -> int:
    """Return the unpacked size of an LZF chunk in bytes, counted up to `most`. HDF5 would unpack any size."""
    at = size = 0
    while at < len(packed) and size <= most:
        head, is_long = packed[at], packed[at] >= 7 << 5
        size += head + 1 if head < 32 else (head >> 5) + 2 + (packed[at + 1] if is_long else 0)
        at += head + 2 if head < 32 else 2 + is_long
    return size


def _zstd_bytes(packed: bytes) -> int:
    """Return the unpacked size of a Zstandard frame in bytes. Streams and several frames are refused."""
    flags = packed[4]
    alone, width = flags >> 5 & 1, (flags >> 5 & 1, 2, 4, 8)[flags >> 6]
    start = 6 - alone + (0, 1, 2, 4)[flags & 3]
    at, last = start + width, 0
    while not last and at < len(packed):
        head = int.from_bytes(packed[at : at + 3], "little")
        last, at = head & 1, at + 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
    if packed[:4] != b"\x28\xb5\x2f\xfd" or not width or at + 4 * (flags >> 2 & 1) != len(packed):
        raise UnusualFileError
    return int.from_bytes(packed[start : start + width], "little") + 256 * (width == 2)


def zarr_bytes(data: Any, path: Path) -> int:
    """Return the bytes of all texts in a zarr array. A chunk must not unpack to more values than the array has."""
    names = [type(codec).__name__.removesuffix("Codec").lower() for codec in (*data.filters, *data.compressors)]
    packer, *more = [name for name in names if name in PACKERS] or [""]
    is_text, size, total = data.dtype.kind in "OT", math.prod(data.chunks), 0
    most = LONGEST_TEXTS if is_text else size * data.dtype.itemsize + BESIDE
    if is_text and data.fill_value:  # It takes its length again for every missing entry.
        raise UnusualFileError
    for packed in _zarr_chunks(data, path / data.path, most):
        n_bytes = unpacked_bytes(packer, packed, most)
        if more or n_bytes > most:
            raise UnusualFileError
        if is_text:
            texts = numcodecs.get_codec({"id": packer}).decode(packed) if packer else packed
            if int.from_bytes(bytes(texts[:4]), "little") > size:
                raise UnusualFileError
            total += n_bytes
    return total


def _zarr_chunks(data: Any, folder: Path, most: int) -> Iterator[bytes]:
    """Yield the stored chunks of an array. One file (a shard) may hold several."""
    n = math.prod(data.shards or data.chunks) // max(math.prod(data.chunks), 1)
    for file in folder.rglob("*"):
        if file.name in DESCRIPTIONS or not file.is_file():
            continue
        if file.stat().st_size > 2 * n * most:
            raise UnusualFileError
        content, places = file.read_bytes(), [[0, 2**62]]
        if data.shards:
            codec = data.metadata.codecs[0]
            if codec != ShardingCodec(chunk_shape=codec.chunk_shape, codecs=codec.codecs):
                raise UnusualFileError
            places = np.frombuffer(content[-16 * n - 4 : -4], "<u8").reshape(-1, 2).tolist()
        yield from (content[start : start + size] for start, size in places if size < 2**63)
