"""Files made to harm: each is refused in a moment, with one sentence, and nothing outside of it is opened."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import stored_priors
from numcodecs import LZ4, Blosc, Zstd

import dice
from dice._data.files import read

FIXTURE = stored_priors.path("plain")
ENCODING = {"encoding-type": "array", "encoding-version": "0.2.0"}


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What the first prior of a process waits for is no part of the time that a refusal takes."""
    dice.Prior.load(FIXTURE)


def refusal(path: Path) -> str:
    """The one sentence that a file is refused with, at once."""
    start = time.monotonic()
    with pytest.raises(dice.DiceError) as caught:
        dice.Prior.load(path)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 5
    return str(caught.value)


@pytest.fixture
def forged(tmp_path):
    """A copy of a stored prior, and its group, to be changed."""
    path = tmp_path / "forged.h5ad"
    shutil.copy(FIXTURE, path)
    with h5py.File(path, "a") as file:
        yield path, file["uns/dice"]


def replaced(prior: h5py.Group, name: str, **kwargs) -> h5py.Dataset:
    del prior[name]
    data = prior.create_dataset(name, **kwargs)
    data.attrs.update(ENCODING)
    return data


def circle(prior):
    prior["weights/inner"] = prior


def doubling(prior):
    """Thirty groups, each twice in the one before: a billion ways to the last."""
    group = prior["weights"]
    for _ in range(30):
        inner = group.create_group("a")
        group["b"] = inner
        group = inner


def soft_link(prior):
    prior.move("mean", "weights/elsewhere")
    prior["mean"] = h5py.SoftLink("/uns/dice/weights/elsewhere")


def external_link(prior):
    del prior["mean"]
    prior["mean"] = h5py.ExternalLink("/dev/zero", "/mean")


def external_data(prior):
    replaced(prior, "mean", shape=(20,), dtype="f4", external=[("/dev/zero", 0, 80)])


def virtual(prior):
    layout = h5py.VirtualLayout(shape=(20,), dtype="f4")
    layout[:] = h5py.VirtualSource("/dev/zero", "mean", shape=(20,))
    del prior["mean"]
    prior.create_virtual_dataset("mean", layout).attrs.update(ENCODING)


def unknown_filter(prior):
    replaced(prior, "mean", shape=(20,), dtype="f4", chunks=(20,), scaleoffset=2)


def bomb(prior):
    """A chunk of 80 bytes whose packed form is far longer."""
    mean = replaced(prior, "mean", shape=(20,), dtype="f4", chunks=(20,), compression="gzip")
    mean.id.write_direct_chunk((0,), bytes(60_000))  # older HDF5 writes no longer ones


def deflated(n):
    """So many zeros, packed a thousand times smaller."""
    return zlib.compress(bytes(n), 9)


def bomb_within_its_chunk(prior):
    """A packed chunk that is smaller than its declared 80 kB, and unpacks to 20 MB."""
    mean = replaced(prior, "mean", shape=(20,), dtype="f4", chunks=(20_000,), maxshape=(None,), compression="gzip")
    mean.id.write_direct_chunk((0,), deflated(20_000_000))


def lzf_bomb(prior):
    """HDF5 tries with more and more room, 88 times as much in the end: 8 s for 2 MB."""
    mean = replaced(prior, "mean", shape=(20,), dtype="f4", chunks=(2**18,), maxshape=(None,), compression="lzf")
    mean.id.write_direct_chunk((0,), b"\x01\0\0" + b"\xe0\xff\0" * 600_000)


def packed_twice(prior):
    """Deflated twice, a kilobyte unpacks to a gigabyte."""
    kept, plist = dict(prior["mean"].attrs), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((20,))
    plist.set_deflate(9)
    plist.set_deflate(9)
    del prior["mean"]
    space = h5py.h5s.create_simple((20,))
    mean = h5py.Dataset(h5py.h5d.create(prior.id, b"mean", h5py.h5t.IEEE_F32LE, space, plist))
    mean.attrs.update(kept)
    mean.id.write_direct_chunk((0,), zlib.compress(deflated(20_000_000), 9))


def large_chunks(prior):
    replaced(prior, "mean", shape=(20,), dtype="f4", chunks=(10**6,), maxshape=(None,), compression="gzip")


def one_name_for_all(prior):
    """A name of a megabyte, stored once and used two hundred times."""
    genes = replaced(prior, "genes", data=["x" * 10**6] + ["y"] * 199, dtype=h5py.string_dtype())
    genes.attrs["encoding-type"] = "string-array"
    path, offset = Path(prior.file.filename), genes.id.get_offset()
    prior.file.close()
    content = bytearray(path.read_bytes())
    content[offset : offset + 200 * 16] = content[offset : offset + 16] * 200
    path.write_bytes(content)
    assert len(content) < 2e6


def other_encoding(prior):
    prior["mean"].attrs["encoding-type"] = "awkward-array"


def references(prior):
    data = replaced(prior, "mean", shape=(20,), dtype=h5py.ref_dtype)
    data[0] = prior.ref


def many(prior):
    for index in range(1_001):
        prior["weights"][f"w{index}"] = prior["mean"]


def not_a_group(prior):
    file = prior.file
    del file["uns/dice"]
    file["uns"].create_dataset("dice", shape=(5,), dtype="f4")


def no_format(prior):
    del prior["format"]


def no_values(prior):
    """A dataset without a shape, which ended in an error of Python's."""
    kept = dict(prior["history/loss"].attrs)
    del prior["history/loss"]
    prior["history/loss"] = h5py.Empty("f4")
    prior["history/loss"].attrs.update(kept)


def table_as_array(prior):
    replaced(prior, "history", shape=(5,), dtype="f4")


def datatype(prior):
    del prior["mean"]
    prior["mean"] = np.dtype("f4")


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (circle, "'weights/inner/.*' exceeds the limits of 1,000 arrays and 16 nested groups"),
        (doubling, "'weights/a/a/.*' exceeds the limits of 1,000 arrays"),
        (soft_link, "'mean' is a link to somewhere else"),
        (external_link, "'mean' is a link to somewhere else"),
        (external_data, "'mean' has an unsupported compression or type, or is stored in another file"),
        (virtual, "'mean' has an unsupported compression or type, or is stored in another file"),
        (unknown_filter, "'mean' has an unsupported compression"),
        (bomb, "'mean' has an unsupported compression"),
        (bomb_within_its_chunk, "'mean' has an unsupported compression"),
        (packed_twice, "'mean' has an unsupported compression"),
        (lzf_bomb, "'mean' has an unsupported compression"),
        (large_chunks, "'mean' has an unsupported compression"),
        (one_name_for_all, "'genes' increases the unpacked size to 763 MB, but the limit is 256 MB"),
        (other_encoding, "'mean' has kind 'awkward-array'"),
        (references, "'mean' has an unsupported compression"),
        (many, "exceeds the limits of 1,000 arrays"),
        (not_a_group, "no 'format' number"),
        (no_format, "no 'format' number"),
        (no_values, "'history/loss' has kind 'None', not"),
        (table_as_array, "'history' is not a table"),
        (datatype, "'mean' is neither a group nor an array"),
    ],
)
def test_a_forged_file_is_refused_before_it_is_read(forged, forge, sentence):
    path, prior = forged
    file = prior.file
    forge(prior)
    file.close()
    assert re.search(sentence, refusal(path))


def test_the_file_itself_loads(forged):
    path, prior = forged
    prior.file.close()
    assert dice.Prior.load(path).n_latent == 3


@pytest.mark.parametrize("packing", ["lzf", "gzip"])
@pytest.mark.parametrize("more", [{}, {"shuffle": True}, {"fletcher32": True}])
def test_a_packed_prior_loads(tmp_path, packing, more):
    """Also chunks that packing would make larger, which are stored as they are."""
    shutil.copy(FIXTURE, tmp_path / "prior.h5ad")
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "prior.h5ad", "a") as file:
        prior = file["uns/dice"]
        for name in [name for name in prior if getattr(prior[name], "shape", ())]:
            values, kept = prior[name][()], dict(prior[name].attrs)
            del prior[name]
            own = more if values.dtype.kind == "f" else {}  # not for texts
            made = prior.create_dataset(name, data=values, compression=packing, chunks=True, **own)
            made.attrs.update(kept)
        noise = rng.integers(256, size=1000, dtype=np.uint8)
        file.create_dataset("uns/noise", data=noise, compression=packing, chunks=(100,)).attrs.update(ENCODING)
    assert dice.Prior.load(tmp_path / "prior.h5ad").n_latent == 3
    assert read(tmp_path / "prior.h5ad").uns["noise"].shape == (1000,)


def test_a_link_instead_of_the_whole_prior_is_not_followed(tmp_path):
    for link in (h5py.ExternalLink(str(FIXTURE), "/uns/dice"), h5py.SoftLink("/uns")):
        with h5py.File(tmp_path / "link.h5ad", "w") as file:
            file.create_group("uns")["dice"] = link
        assert re.search("'dice' is a link to somewhere else", refusal(tmp_path / "link.h5ad"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert re.search("There is no file", refusal(tmp_path / "pipe"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A stored prior as .zarr folders, in the format that anndata wrote up to 0.12 and in that from 0.13 on."""
    import anndata as ad
    import zarr

    folders = {version: tmp_path_factory.mktemp("written") / "prior.zarr" for version in (2, 3)}
    for version, path in folders.items():
        # Without a summary of all arrays at the root: a change below would not be seen.
        root = zarr.open_group(path, mode="w", zarr_format=version)
        ad.io.write_elem(root, "/", ad.read_h5ad(FIXTURE))
        assert dice.Prior.load(path).n_latent == 3
    return folders


@pytest.fixture(params=[2, 3])
def folder(written, tmp_path, request):
    """A copy of a folder, to be changed."""
    return shutil.copytree(written[request.param], tmp_path / "prior.zarr")


def changed(description, change):
    """Change what a file says of an array or a group."""
    entries = json.loads(description.read_text())
    change(entries)
    description.write_text(json.dumps(entries))


def chunk_codecs(array):
    """How chunks are packed, also those in a shard."""
    return array["codecs"][0].get("configuration", {}).get("codecs", array["codecs"])


def transpose(*order):
    return {"name": "transpose", "configuration": {"order": list(order)}}


def test_a_codec_that_is_not_known_to_pack_only_is_refused(folder):
    """numcodecs has one that unpickles, which zarr takes as a second step after text: older versions run what it holds.

    In format 3 there is no such step; one that zarr knows and that no prior needs stands for it.
    """
    place = folder / "uns" / "dice"
    if (place / "genes" / ".zarray").exists():
        name = "genes"
        changed(place / name / ".zarray", lambda array: array["filters"].append({"id": "pickle", "protocol": 5}))
    else:
        name = "mean"
        changed(place / name / "zarr.json", lambda array: chunk_codecs(array).insert(0, transpose(0)))
    assert re.search(f"'{name}' has an unsupported compression", refusal(folder))


def sharded(folder, n=20, **changes):
    """The array "mean" again, its chunks in one file: anndata writes so from 0.13 on."""
    import zarr

    group = zarr.open_group(folder / "uns" / "dice", mode="r+", use_consolidated=False)
    mean = group["mean"]
    values, attributes = mean[:], dict(mean.attrs)
    group.create_array("mean", shape=(20,), dtype="f4", chunks=(5,), shards=(n,), attributes=attributes, overwrite=True)
    group["mean"][:] = values


@pytest.mark.parametrize("folder", [3], indirect=True)
def test_shards_are_read(folder):
    sharded(folder)
    assert dice.Prior.load(folder).n_latent == 3


@pytest.mark.parametrize("folder", [3], indirect=True)
def test_shards_are_bounded_as_chunks_are(folder):
    sharded(folder, n=20)
    changed(
        folder / "uns" / "dice" / "mean" / "zarr.json",
        lambda array: array["chunk_grid"]["configuration"].update(chunk_shape=[5 * 10**9]),
    )
    assert re.search("'mean' increases the unpacked size to 19,07[34] MB", refusal(folder))


@pytest.mark.parametrize("folder", [3], indirect=True)
def test_the_index_of_a_shard_is_packed_as_chunks_are(folder):
    sharded(folder)
    changed(
        folder / "uns" / "dice" / "mean" / "zarr.json",
        lambda array: array["codecs"][0]["configuration"]["index_codecs"].insert(0, transpose(1, 0)),
    )
    assert re.search("'mean' has an unsupported compression", refusal(folder))


@pytest.mark.parametrize("place", ["chunk", "mean", "."])
def test_a_folder_with_links_is_refused(folder, place, tmp_path):
    if place == "chunk":
        place = "mean/0" if folder.joinpath(".zgroup").exists() else "mean/c/0"
    target = folder / "uns" / "dice" / place
    target.rename(tmp_path / "elsewhere")
    target.symlink_to(tmp_path / "elsewhere")
    assert re.search("is a link", refusal(folder))


def chunk(folder, name):
    """The only chunk of an array, and what packs it."""
    place = folder / "uns" / "dice" / name
    return (place / "0", Blosc()) if (place / "0").exists() else (place / "c" / "0", Zstd())


def test_a_chunk_of_a_folder_that_unpacks_to_more_than_it_should_is_refused(folder):
    file, codec = chunk(folder, "mean")
    file.write_bytes(codec.encode(np.zeros(20 + 1024, np.float32)))
    assert re.search("'mean' has an unsupported layout", refusal(folder))


def test_a_chunk_of_texts_that_claims_more_texts_than_it_should_is_refused(folder):
    """numcodecs makes room for all of them, 32 GB here, before it looks for the first."""
    file, codec = chunk(folder, "genes")
    file.write_bytes(codec.encode(b"\xf0\xff\xff\xff" + bytes(1000)))
    assert re.search("'genes' has an unsupported layout", refusal(folder))


def test_long_texts_of_a_folder_count(folder):
    file, codec = chunk(folder, "genes")
    long = (70_000_000).to_bytes(4, "little") + bytes(70_000_000)
    file.write_bytes(codec.encode((1).to_bytes(4, "little") + long))
    assert re.search("'genes' increases the unpacked size to 26[79] MB", refusal(folder))


@pytest.mark.parametrize("folder", [3], indirect=True)
@pytest.mark.parametrize("forged", ["stream", "two frames", "no frame", "empty"])
def test_a_chunk_that_does_not_say_its_size_is_refused(folder, forged):
    file, codec = chunk(folder, "mean")
    honest = codec.encode(np.zeros(20, np.float32))
    streamed = honest[:4] + bytes([honest[4] & 0b11011111, 0]) + honest[6:]
    content = {"stream": streamed, "two frames": honest * 2, "no frame": b"x" + honest[1:], "empty": b""}
    file.write_bytes(content[forged])
    assert re.search("'mean' has an unsupported layout", refusal(folder))


@pytest.mark.parametrize("folder", [2], indirect=True)
@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("zlib", zlib.compress), ("lz4", LZ4().encode)])
def test_every_packer_is_bounded(folder, name, pack):
    file, _ = chunk(folder, "mean")
    values = Blosc().decode(file.read_bytes())
    changed(file.with_name(".zarray"), lambda array: array.update(compressor={"id": name}))
    file.write_bytes(pack(values))
    assert dice.Prior.load(folder).n_latent == 3
    file.write_bytes(pack(bytes(len(values) + 2000)))
    assert re.search("'mean' has an unsupported layout", refusal(folder))


@pytest.mark.parametrize("folder", [2], indirect=True)
def test_a_folder_with_chunks_packed_twice_is_refused(folder):
    file, codec = chunk(folder, "mean")
    changed(file.with_name(".zarray"), lambda array: array.update(filters=[{"id": "zlib", "level": 1}]))
    file.write_bytes(codec.encode(zlib.compress(codec.decode(file.read_bytes()))))
    assert re.search("'mean' has an unsupported layout", refusal(folder))


@pytest.mark.parametrize("folder", [3], indirect=True)
def test_a_chunk_in_a_shard_that_unpacks_to_more_than_it_should_is_refused(folder):
    sharded(folder)
    shard = folder / "uns" / "dice" / "mean" / "c" / "0"
    index = np.frombuffer(shard.read_bytes()[-68:-4], "<u8").reshape(-1, 2).copy()
    bomb = Zstd().encode(np.zeros(5 + 1024, np.float32))
    index[0] = 0, len(bomb)
    shard.write_bytes(bomb + index.tobytes() + bytes(4))
    assert re.search("'mean' has an unsupported layout", refusal(folder))
