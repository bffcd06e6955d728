"""Lengths of texts in an HDF5 file, taken from its bytes.

The library allocates whatever length a file names before it looks at the text, and it has no call that tells the
length. A text of variable length is stored as a record of 16 bytes: its length, and where it is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

#: Number of a message with an attribute, with a continuation, and with attributes kept elsewhere.
ATTRIBUTE, CONTINUATION, IN_HEAP = 0x0C, 0x10, 0x15
#: Classes of types: numbers, bits, texts, references and enumerations are in the message itself; then variable lengths.
INSIDE, VARIABLE = (0, 1, 3, 4, 5, 7, 8), 9
#: Most blocks of messages of one object.
MOST_BLOCKS = 1000
RECORD = np.dtype([("length", "<u4"), ("place", "V12")])


class UnusualFileError(ValueError):
    """The file is laid out in a way that no package of the field writes."""


def attribute_bytes(node: h5py.Dataset | h5py.Group, path: Path) -> int:
    """Bytes that reading all attributes of a group or a dataset takes."""
    if node.file.userblock_size or node.file.id.get_create_plist().get_sizes() != (8, 8):
        raise UnusualFileError
    with path.open("rb") as stream:
        return sum(_attribute(body) for body in _messages(stream, h5py.h5o.get_info(node.id).addr))


def _messages(stream: Any, address: int) -> Iterator[bytes]:
    """The attributes in the header of an object, as bytes."""
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
    """Bytes that reading one attribute takes."""
    version, *sizes = struct.unpack_from("<BxHHH", body)
    if version not in (1, 2, 3) or (version > 1 and body[1] & 3):
        raise UnusualFileError
    name, dtype, space = (size + -size % 8 for size in sizes) if version == 1 else sizes
    start = 8 + (version == 3) + name
    kind, base = body[start] & 15, body[start + 8] & 15 if dtype > 8 else 0
    if kind in INSIDE:
        return len(body)
    if kind != VARIABLE or base not in (0, 3):
        raise UnusualFileError
    records = body[start + dtype + space :]
    return int(np.frombuffer(records[: len(records) // 16 * 16], RECORD)["length"].sum(dtype=np.int64)) + len(body)


def text_bytes(data: h5py.Dataset, path: Path) -> int:
    """Bytes of all texts of variable length in a dataset."""
    if data.chunks is None:
        offset = data.id.get_offset()
        if offset is None:
            if data.id.get_storage_size():
                raise UnusualFileError
            return 0
        records = np.fromfile(path, RECORD, count=data.size, offset=offset)
        return int(records["length"].sum(dtype=np.int64))
    packing = {"compression": data.compression, "shuffle": data.shuffle, "fletcher32": data.fletcher32}
    chunks: list[tuple[int, ...]] = []
    data.id.chunk_iter(lambda chunk: chunks.append(chunk.chunk_offset))
    # The library unpacks the records for us, if they are called bytes.
    with h5py.File("records", "w", driver="core", backing_store=False) as memory:
        total = 0
        for place in chunks:
            twin = memory.create_dataset(None, data.chunks, "V16", chunks=data.chunks, **packing)
            mask, packed = data.id.read_direct_chunk(place)
            twin.id.write_direct_chunk((0,) * data.ndim, packed, mask)
            total += int(twin[()].view(RECORD)["length"].sum(dtype=np.int64))
    return total
