"""Lengths that are read from the bytes of a file, against the libraries that wrote them."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import zarr
from numcodecs import LZ4, Blosc, GZip, Zlib, Zstd

from dice._data import lengths

#: At the borders of what one, two and four bytes can tell.
SIZES = (1, 100, 255, 256, 257, 65_535, 65_791, 65_792, 70_000, 300_000)
PACKERS = {"blosc": Blosc(), "gzip": GZip(), "lz4": LZ4(), "zlib": Zlib(), "zstd": Zstd()}


def contents(size):
    yield bytes(size)
    yield np.random.default_rng(size).bytes(size)
    yield (b"abcdefgh" * size)[:size]


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("size", SIZES)
def test_a_packed_chunk_tells_its_length(name, size):
    for content in contents(size):
        packed = bytes(PACKERS[name].encode(content))
        assert lengths.unpacked_bytes(name, packed, size) == size
        # What is longer than allowed is not unpacked to its end, and is longer all the same.
        assert lengths.unpacked_bytes(name, packed, size - 1) > size - 1


@pytest.mark.parametrize("size", SIZES)
def test_a_chunk_of_lzf_tells_its_length(tmp_path, size):
    for number, content in enumerate(contents(size)):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            data = file.create_dataset("x", data=np.frombuffer(content, "u1"), chunks=(size,), compression="lzf")
            mask, packed = data.id.read_direct_chunk((0,))
        if not mask:  # HDF5 keeps a chunk as it is if packing makes it longer.
            assert lengths.unpacked_bytes("lzf", packed, size) == size


TEXTS = ["", "B", "naïve T", "日本", "x" * 5000]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize(
    "packing", [{}, {"chunks": (2,)}, {"compression": "gzip"}, {"compression": "lzf", "shuffle": True}]
)
def test_texts_of_a_dataset_are_as_long_as_they_are(tmp_path, libver, packing):
    path = tmp_path / "texts.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("x", data=TEXTS, dtype=h5py.string_dtype(), **packing)
        file.create_dataset("none", shape=(3,), dtype=h5py.string_dtype(), **packing)
    with h5py.File(path) as file:
        assert lengths.text_bytes(file["x"], path) == sum(len(text.encode()) for text in TEXTS)
        assert lengths.text_bytes(file["none"], path) == 0


def test_texts_are_counted_as_hdf5_reads_them(tmp_path):
    """HDF5 leaves texts unshuffled. They were counted after unshuffling, so that 12 long texts counted for nothing."""
    path = tmp_path / "texts.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", data=[""] * 4 + ["x" * 1000] * 12, dtype=h5py.string_dtype(), shuffle=True)
        assert data.chunks == (16,)
    with h5py.File(path) as file:
        assert lengths.text_bytes(file["x"], path) == 12_000


def test_shuffled_texts_are_refused(tmp_path):
    """How texts were shuffled is a number in the file, which need not be the size of their records."""
    path = tmp_path / "texts.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", shape=(16,), chunks=(16,), dtype=h5py.string_dtype(), shuffle=True)
        data.id.write_direct_chunk((0,), bytes(16 * 16))
    with h5py.File(path) as file, pytest.raises(lengths.UnusualFileError):
        lengths.text_bytes(file["x"], path)


@pytest.mark.parametrize("chunks", [None, (100,)])
def test_a_text_that_fills_what_is_not_stored_is_refused(tmp_path, chunks):
    """A file of 100 kB with 1,000 entries took 100 MB, none of which was counted."""
    path = tmp_path / "texts.h5"
    with h5py.File(path, "w") as file:
        options = {"dtype": h5py.string_dtype(), "fillvalue": "x" * 100_000, "chunks": chunks}
        file.create_dataset("x", shape=(1000,), **options)
        file.create_dataset("whole", data=["B"] * 1000, **options)
        file.create_dataset("nothing", shape=(0,), maxshape=(None,) if chunks else None, **options)
        file.create_dataset("part", shape=(1000,), **options)
        if chunks:
            file["part"][:900] = "B"
    with h5py.File(path) as file:
        assert lengths.text_bytes(file["whole"], path) == 1000
        assert lengths.text_bytes(file["nothing"], path) == 0
        for name in ("x", "part"):
            with pytest.raises(lengths.UnusualFileError):
                lengths.text_bytes(file[name], path)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_text_that_fills_a_store_is_refused(tmp_path, zarr_format):
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=zarr_format)
    root.create_array("x", shape=(1000,), dtype=str, fill_value="x" * 100_000)
    plain = root.create_array("plain", shape=(2,), dtype=str, fill_value="")
    plain[:] = np.array(["B", "T"])
    assert lengths.zarr_bytes(plain, tmp_path / "x.zarr") > 0
    with pytest.raises(lengths.UnusualFileError):
        lengths.zarr_bytes(root["x"], tmp_path / "x.zarr")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_attributes_are_at_least_as_long_as_their_texts(tmp_path, libver):
    """Attributes are counted, however many there are and whatever was removed before."""
    path = tmp_path / "attributes.h5"
    with h5py.File(path, "w", libver=libver) as file:
        group = file.create_group("x", track_order=False)
        for n, text in enumerate(TEXTS):
            group.attrs[f"a{n}"] = text
        group.attrs["numbers"] = np.arange(50.0)
        group.attrs["list"] = np.array(TEXTS, dtype=object)
        del group.attrs["a0"]
        file.create_group("empty")
    size = 2 * sum(len(text.encode()) for text in TEXTS) + 400
    with h5py.File(path) as file:
        assert size <= lengths.attribute_bytes(file["x"], path) <= size + 2000
        assert lengths.attribute_bytes(file["empty"], path) == 0


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", [(3,), (10,), (64,)])
def test_arrays_of_zarr_that_anndata_writes_are_counted(tmp_path, zarr_format, chunks):
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=zarr_format)
    numbers = root.create_array("numbers", shape=(10,), dtype="f4", chunks=chunks)
    numbers[:] = np.random.default_rng(0).normal(size=10).astype("f4")
    assert lengths.zarr_bytes(numbers, tmp_path / "x.zarr") == 0
    chunk = next(file for file in (tmp_path / "x.zarr" / "numbers").rglob("*") if file.name[-1].isdigit())
    packer = PACKERS["blosc" if zarr_format == 2 else "zstd"]
    chunk.write_bytes(bytes(packer.encode(bytes(4 * chunks[0] + lengths.BESIDE + 1))))
    with pytest.raises(lengths.UnusualFileError):
        lengths.zarr_bytes(numbers, tmp_path / "x.zarr")
    chunk.write_bytes(bytes(packer.encode(bytes(4 * chunks[0]))))
    assert lengths.zarr_bytes(numbers, tmp_path / "x.zarr") == 0


@pytest.mark.parametrize("checksum", [0, 1])
@pytest.mark.parametrize("dictionary", range(4))
@pytest.mark.parametrize("size_flag", range(4))
@pytest.mark.parametrize("alone", [0, 1])
def test_every_header_of_zstandard_is_read(alone, size_flag, dictionary, checksum):
    """Frames by hand, after RFC 8878: one stored and one repeated block."""
    width, n = (alone, 2, 4, 8)[size_flag], 50_000 if size_flag else 200
    flags = size_flag << 6 | alone << 5 | checksum << 2 | dictionary
    header = b"\x28\xb5\x2f\xfd" + bytes([flags]) + bytes(1 - alone) + bytes((0, 1, 2, 4)[dictionary])
    header += (n - 256 * (width == 2)).to_bytes(width, "little") if width else b""
    stored, repeated = (20 << 3).to_bytes(3, "little") + bytes(20), ((n - 20) << 3 | 3).to_bytes(3, "little") + b"x"
    frame = header + stored + repeated + bytes(4 * checksum)
    if width:
        assert lengths.unpacked_bytes("zstd", frame, 10**6) == n
    for wrong in (frame if not width else b"\x27" + frame[1:], frame + b"x", frame[:-1]):
        with pytest.raises(lengths.UnusualFileError):
            lengths.unpacked_bytes("zstd", wrong, 10**6)
