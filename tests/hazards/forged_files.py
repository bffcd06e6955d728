"""Files of priors and of references that are made to harm, at every door: links, bombs, codecs, false lengths.

The values of all of them are those of a stored prior, so that whoever looks at values first has lost. One thing is
changed, at a random place and by a random amount. All of it must be refused with one sentence, whatever the door.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import numpy as np
import stored_priors
import zarr
from numcodecs import Blosc, Zstd
from scipy import sparse

import dice
from dice.cli import main
from hazards.forgery import assert_sentence

Rng = np.random.Generator
#: Seconds, and bytes beyond those in use, that a refusal may take.
SECONDS, BYTES = 5, 2**30
COMMANDS = ("annotate", "transfer", "novelty", "denoise", "cluster")
DOORS = ("load", "verb", "info", "shelf", "shelf list", *COMMANDS, "transfer --stream")


def _leaf(prior: Any, rng: Rng) -> tuple[Any, str]:
    """The holder and the name of a random array of a prior."""
    group, name = prior, sorted(prior)[rng.integers(len(prior))]
    while not hasattr(group[name], "shape") and len(group[name]):
        group = group[name]
        name = sorted(group)[rng.integers(len(group))]
    return group, name


def _replaced(prior: h5py.Group, rng: Rng, **made: Any) -> h5py.Dataset:
    """A random array that is made anew, with the attributes that it had."""
    group, name = _leaf(prior, rng)
    kept = dict(group[name].attrs)
    del group[name]
    data = group.create_dataset(name, **made)
    data.attrs.update(kept)
    return data


def unallocated(prior: h5py.Group, rng: Rng) -> None:
    """Numbers that are claimed and not stored."""
    shape = [(10**9,), (3 * 10**4, 3 * 10**4), (10**13,), (2**59,)][rng.integers(4)]
    _replaced(prior, rng, shape=shape, dtype=["i8", "f4", "u1", "?"][rng.integers(4)], chunks=None)


def fixed_texts(prior: h5py.Group, rng: Rng) -> None:
    length = int(10 ** rng.uniform(5, 9))
    n = int(max(10**10 / length, 1))
    packed = {"chunks": (1,), "compression": "gzip"} if rng.random() < 0.5 else {}
    _replaced(prior, rng, shape=(n,), dtype=f"S{length}", **packed)


def long_scalar(prior: h5py.Group, rng: Rng) -> None:
    _replaced(prior, rng, shape=(), dtype=f"S{int(rng.integers(3 * 10**8, 2**31))}")


def large_chunk(prior: h5py.Group, rng: Rng) -> None:
    size = int(2 ** rng.uniform(21, 28))
    _replaced(prior, rng, shape=(20,), dtype="f4", chunks=(size,), maxshape=(None,), compression="gzip")


def tiny_chunks(prior: h5py.Group, rng: Rng) -> None:
    """Very many chunks, most of them not stored."""
    n = int(10 ** rng.uniform(5.5, 8))
    shape, chunks = [((n,), (1,)), ((n // 50, 50), (1, 1)), ((n * 10,), (10,))][rng.integers(3)]
    _replaced(prior, rng, shape=shape, dtype=["f4", "u1", h5py.string_dtype()][rng.integers(3)], chunks=chunks)


def reference(prior: h5py.Group, rng: Rng) -> None:
    """A reference, which may lead to an array without a name."""
    group, name = _leaf(prior, rng)
    kind = ["categories", "encoding-type", "shape"][rng.integers(3)]
    group[name].attrs.pop(kind, None)
    group[name].attrs[kind] = [group[name].ref, prior.file.ref, h5py.Reference()][rng.integers(3)]


def deflate_bomb(prior: h5py.Group, rng: Rng) -> None:
    size = int(2 ** rng.uniform(10, 18))
    data = _replaced(prior, rng, shape=(20,), dtype="f4", chunks=(size,), maxshape=(None,), compression="gzip")
    data.id.write_direct_chunk((0,), zlib.compress(bytes(int(4 * size * rng.uniform(1.1, 900))), 9))


def lzf_bomb(prior: h5py.Group, rng: Rng) -> None:
    """A run of zeros, and then copies of as much as one step can copy."""
    size = int(2 ** rng.uniform(10, 18))
    data = _replaced(prior, rng, shape=(20,), dtype="f4", chunks=(size,), maxshape=(None,), compression="lzf")
    data.id.write_direct_chunk((0,), b"\x01\0\0" + b"\xe0\xff\0" * int(size * rng.uniform(0.1, 2.6)))


def packed_twice(prior: h5py.Group, rng: Rng) -> None:
    group, name = _leaf(prior, rng)
    kept, plist = dict(group[name].attrs), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((20,))
    for _ in range(rng.integers(2, 4)):
        plist.set_deflate(9)
    if rng.random() < 0.5:
        plist.set_shuffle()
    del group[name]
    made = h5py.h5d.create(group.id, name.encode(), h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((20,)), plist)
    h5py.Dataset(made).attrs.update(kept)
    made.write_direct_chunk((0,), zlib.compress(zlib.compress(bytes(50_000_000), 9), 9))


def other_filter(prior: h5py.Group, rng: Rng) -> None:
    more = [{"scaleoffset": 2}, {"compression": "szip"}][0 if not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP) else 1]
    _replaced(prior, rng, shape=(20,), dtype="f4", chunks=(20,), **more)


def link(prior: h5py.Group, rng: Rng) -> None:
    """A link in place of anything, to another file, to a device, or to itself."""
    holders = [(prior.file["uns"], "dice"), _leaf(prior, rng), (prior, "weights")]
    group, name = holders[rng.integers(len(holders))]
    pipe = Path(prior.file.filename).with_name("pipe")  # whoever opens it waits for ever
    os.mkfifo(pipe)
    targets = [
        h5py.ExternalLink(str(stored_priors.path("labels")), "/uns/dice"),
        h5py.ExternalLink(str(pipe), "/"),
        h5py.ExternalLink("/etc/passwd", "/"),
        h5py.SoftLink("/uns"),
        h5py.SoftLink("/"),
        h5py.SoftLink(f"{group.name}/{name}"),
        h5py.SoftLink("/nowhere"),
    ]
    del group[name]
    group[name] = targets[rng.integers(len(targets))]


def extra_link(prior: h5py.Group, rng: Rng) -> None:
    prior[f"weights/{rng.integers(10**6)}"] = h5py.ExternalLink(str(stored_priors.path("labels")), "/uns/dice/mean")


def kept_elsewhere(prior: h5py.Group, rng: Rng) -> None:
    _replaced(prior, rng, shape=(20,), dtype="f4", external=[(["/dev/zero", "/etc/passwd"][rng.integers(2)], 0, 80)])


def virtual(prior: h5py.Group, rng: Rng) -> None:
    n = int(rng.choice([20, 10**12]))
    layout = h5py.VirtualLayout(shape=(n,), dtype="f4")
    layout[:20] = h5py.VirtualSource(str(stored_priors.path("labels")), "/uns/dice/mean", shape=(20,))
    group, name = _leaf(prior, rng)
    del group[name]
    group.create_virtual_dataset(name, layout)


def circle(prior: h5py.Group, rng: Rng) -> None:
    """Groups that hold themselves, or each other many times."""
    group = prior[["weights", "labels", "history"][rng.integers(3)]]
    if rng.random() < 0.5:
        group["again"] = [prior, prior.file, group][rng.integers(3)]
        return
    for _ in range(rng.integers(14, 40)):
        inner = group.create_group("a")
        for name in "bcdefg"[: rng.integers(1, 7)]:
            group[name] = inner
        group = inner


def many(prior: h5py.Group, rng: Rng) -> None:
    group = prior["weights"]
    for index in range(int(10 ** rng.uniform(3.01, 4.05))):
        group[f"w{index}"] = prior["mean"]


def odd_type(prior: h5py.Group, rng: Rng) -> None:
    """Values that are neither numbers nor texts."""
    kinds: list[Any] = [
        h5py.ref_dtype,
        h5py.regionref_dtype,
        h5py.vlen_dtype(np.float32),
        h5py.vlen_dtype(h5py.vlen_dtype(np.int8)),
        np.dtype("V16"),
        h5py.opaque_dtype(np.dtype("M8[ns]")),
        np.dtype([("a", h5py.string_dtype()), ("b", "f4")]),
        np.dtype([("a", h5py.ref_dtype)]),
        np.dtype(("f4", (50_000,))),
    ]
    _replaced(prior, rng, shape=(int(rng.choice([1, 20])),), dtype=kinds[rng.integers(len(kinds))])


def named_type(prior: h5py.Group, rng: Rng) -> None:
    group, name = _leaf(prior, rng)
    del group[name]
    group[name] = np.dtype("f4")


def no_values(prior: h5py.Group, rng: Rng) -> None:
    group, name = _leaf(prior, rng)
    kept = dict(group[name].attrs)
    del group[name]
    group[name] = h5py.Empty("f4")
    group[name].attrs.update(kept)


def odd_encoding(prior: h5py.Group, rng: Rng) -> None:
    """What anndata can read, and a prior never holds."""
    group, name = _leaf(prior, rng)
    words = ["awkward-array", "csr_matrix", "categorical", "dataframe", "rec-array", "null", "nullable-integer", "dict"]
    values: list[Any] = [*words, "", "x" * 50_000, 7, np.arange(5000.0), np.array(["array"] * 3, dtype=object)]
    holder = group if rng.random() < 0.2 and group is not prior else group[name]
    if holder is group:
        del group[name]  # the group itself is read by the names in it
    holder.attrs["encoding-type"] = values[rng.integers(len(values))]


def long_attribute(prior: h5py.Group, rng: Rng) -> None:
    """Attributes of texts whose length is a lie, or that are one text, told thousands of times."""
    group, name = _leaf(prior, rng)
    n, size = int(rng.integers(500, 3900)), int(rng.integers(1_000_000, 4_000_000))
    group[name].attrs.pop("encoding-type", None)
    if rng.random() < 0.5:
        group[name].attrs["encoding-type"] = np.array(["x" * size] + ["y"] * n, dtype=object)
        _repeat_record(prior, size, n + 1)
        return
    group[name].attrs["encoding-type"] = "x" * 54_321
    path = Path(prior.file.filename)
    prior.file.close()
    lie = int(rng.integers(2**30, 2**32)).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace((54_321).to_bytes(4, "little"), lie))


def lists(prior: h5py.Group, rng: Rng) -> None:
    """Attributes of lists of numbers or of texts of one length, whose lengths count entries."""
    group, name = _leaf(prior, rng)
    group[name].attrs.pop("encoding-type", None)
    dtype = np.dtype(["i8", "f8", "u1", "S50000"][rng.integers(4)])
    values = np.empty(2, dtype=object)
    values[:] = [np.zeros(int(rng.integers(50, 70)), dtype), np.zeros(1, dtype)]
    group[name].attrs.create("encoding-type", values, dtype=h5py.vlen_dtype(dtype))


def one_text(prior: h5py.Group, rng: Rng) -> None:
    """An array of texts, all of which are one long text that is stored once."""
    size, n = int(rng.integers(500_000, 2_000_000)), int(rng.integers(200, 1000))
    data = _replaced(prior, rng, data=["x" * size] + ["y"] * n, dtype=h5py.string_dtype())
    data.attrs["encoding-type"] = "string-array"
    _repeat_record(prior, size, n + 1)


def hidden_texts(prior: h5py.Group, rng: Rng) -> None:
    """One text told many times after empty ones: HDF5 does not shuffle texts, and unshuffled all lengths are zero."""
    size, n = int(rng.integers(500_000, 2_000_000)), int(rng.integers(200, 700))
    texts = [""] * n + ["x" * size] + ["y"] * (2 * n)
    data = _replaced(prior, rng, data=texts, dtype=h5py.string_dtype(), shuffle=True, chunks=(len(texts),))
    data.attrs["encoding-type"] = "string-array"
    _repeat_record(prior, size, 2 * n + 1)


def filled(prior: h5py.Group, rng: Rng) -> None:
    """A long text in place of everything that is not stored."""
    text, n = "x" * int(rng.integers(10_000, 1_000_000)), int(10 ** rng.uniform(3.5, 6))
    chunks = (100,) if rng.random() < 0.5 else None
    data = _replaced(prior, rng, shape=(n,), dtype=h5py.string_dtype(), fillvalue=text, chunks=chunks)
    data.attrs["encoding-type"] = "string-array"


def _repeat_record(prior: h5py.Group, size: int, n: int) -> None:
    """Replace n records of texts by the first of them."""
    path = Path(prior.file.filename)
    prior.file.close()
    content, needle = path.read_bytes(), size.to_bytes(4, "little")
    record = content.index(needle)
    while content[record + 16 : record + 20] != (1).to_bytes(4, "little"):
        record = content.index(needle, record + 1)
    path.write_bytes(content[:record] + content[record : record + 16] * n + content[record + 16 * n :])


def many_attributes(prior: h5py.Group, rng: Rng) -> None:
    group, name = _leaf(prior, rng)
    for index in range(rng.integers(20, 60)):
        group[name].attrs[f"a{index}"] = "b" * int(rng.integers(1, 5000))
    group[name].attrs["encoding-type"] = "other"


def not_a_table(prior: h5py.Group, rng: Rng) -> None:
    name = ["weights", "history", "labels", "calibration"][rng.integers(4)]
    if name in prior:
        del prior[name]
    prior.create_dataset(name, data=np.zeros(int(rng.integers(0, 9)), "f4"))


# ---- stores of zarr ----------------------------------------------------------------------------


def _array(place: Path, rng: Rng, kind: str | None = None) -> tuple[Path, dict[str, Any]]:
    """The folder of a random array with chunks, of numbers or of texts, and its description."""
    found = []
    for file in sorted(place.rglob("*")):
        if file.name in (".zarray", "zarr.json"):
            entries = json.loads(file.read_text())
            words = str(entries.get("dtype", entries.get("data_type")))
            is_text = words in ("|O", "string")
            if "shape" in entries and _chunk(file.parent) and kind in (None, "texts" if is_text else "numbers"):
                found.append((file, entries))
    return found[rng.integers(len(found))]


def _chunk(folder: Path) -> Path | None:
    return next((file for file in sorted(folder.rglob("*")) if file.is_file() and not _describes(file)), None)


def _describes(file: Path) -> bool:
    return file.name.startswith(".z") or file.name == "zarr.json"


def _packer(entries: dict[str, Any]) -> Any:
    return Blosc() if entries["zarr_format"] == 2 else Zstd()


def zarr_bomb(place: Path, rng: Rng) -> None:
    file, entries = _array(place, rng, "numbers")
    _chunk(file.parent).write_bytes(_packer(entries).encode(bytes(int(10 ** rng.uniform(7, 8.5)))))


def zarr_false_length(place: Path, rng: Rng) -> None:
    file, _ = _array(place, rng)
    chunk = _chunk(file.parent)
    content = bytearray(chunk.read_bytes())
    content[4:8] = int(rng.integers(2**29, 2**31)).to_bytes(4, "little")
    chunk.write_bytes(content)


def zarr_many_texts(place: Path, rng: Rng) -> None:
    file, entries = _array(place, rng, "texts")
    head = int(rng.integers(2**26, 2**32)).to_bytes(4, "little")
    _chunk(file.parent).write_bytes(_packer(entries).encode(head + bytes(int(rng.integers(4, 10**6)))))


def zarr_filled(place: Path, rng: Rng) -> None:
    """A long text in place of everything that is not stored, in an array without chunks."""
    file, entries = _array(place, rng, "texts")
    entries["fill_value"], n = "x" * int(rng.integers(10_000, 1_000_000)), int(10 ** rng.uniform(3.5, 6))
    where = entries if "chunk_grid" not in entries else entries["chunk_grid"]["configuration"]
    entries["shape"] = where["chunks" if "chunks" in where else "chunk_shape"] = [n]
    file.write_text(json.dumps(entries))
    _chunk(file.parent).unlink()


def zarr_shape(place: Path, rng: Rng) -> None:
    """Shapes and chunks that are too large, negative, or no numbers."""
    file, entries = _array(place, rng)
    odd: list[Any] = [[10**12], [10**9, 10**9], [-1], [2**70], ["x"], [1.5], None, [[1]], [10**6] * 40]
    where = entries if rng.random() < 0.5 or "chunk_grid" not in entries else entries["chunk_grid"]["configuration"]
    name = "shape" if where is entries else "chunk_shape"
    where["chunks" if "chunks" in where and rng.random() < 0.5 else name] = odd[rng.integers(len(odd))]
    file.write_text(json.dumps(entries))


def zarr_tiny_chunks(place: Path, rng: Rng) -> None:
    """Very many chunks that are not stored."""
    file, entries = _array(place, rng)
    entries["shape"] = [int(10 ** rng.uniform(5, 8))]
    where = entries if "chunk_grid" not in entries else entries["chunk_grid"]["configuration"]
    where["chunks" if "chunks" in where else "chunk_shape"] = [1]
    file.write_text(json.dumps(entries))
    _chunk(file.parent).unlink()


def zarr_codec(place: Path, rng: Rng) -> None:
    """A codec that unpickles, that zarr does not know, or that no prior needs."""
    file, entries = _array(place, rng)
    names = ["pickle", "json2", "msgpack2", "lzma", "bz2", "delta", "fixedscaleoffset", "x.y", "../../x"]
    codec = {"id": names[rng.integers(len(names))], "dtype": "f4", "astype": "f4", "scale": 1, "offset": 0}
    if entries["zarr_format"] == 2:
        entries["filters"] = [*(entries["filters"] or []), codec]
    else:
        entries["codecs"].insert(0, {"name": f"numcodecs.{codec['id']}", "configuration": codec})
    file.write_text(json.dumps(entries))


def zarr_type(place: Path, rng: Rng) -> None:
    file, entries = _array(place, rng)
    odd: list[Any] = ["|O", "|V16", "<M8[ns]", "<U100000000", "|S2000000000", [["a", "|O"]], "string", "x", 7, None, {}]
    name = "dtype" if entries["zarr_format"] == 2 else "data_type"
    entries[name] = odd[rng.integers(1, len(odd))]
    if entries[name] == json.loads(file.read_text())[name]:  # The file would be honest.
        entries[name] = "x"
    file.write_text(json.dumps(entries))


def zarr_description(place: Path, rng: Rng) -> None:
    """Descriptions that are long, nested, cut short, or no descriptions."""
    file, _ = _array(place, rng)
    text = file.read_text()
    odd = ["", "{}", "[]", "null", "[" * 100_000, text[: rng.integers(len(text))], '{"zarr_format": 9}', text + text]
    odd += [" " * (2**24 + 1) + text, '{"a":' * 5000 + "1" + "}" * 5000]
    file.write_text(odd[rng.integers(len(odd))])


def zarr_link(place: Path, rng: Rng) -> None:
    files = sorted(path for path in place.rglob("*"))
    file = files[rng.integers(len(files))]
    target = place.parents[2] / "elsewhere"
    if rng.random() < 0.5:
        file.rename(target)
    else:
        shutil.rmtree(file) if file.is_dir() else file.unlink()
        target = Path(["/dev/zero", "/etc/passwd", "/"][rng.integers(3)])
    file.symlink_to(target)


def zarr_pipe(place: Path, rng: Rng) -> None:
    """A pipe in place of a chunk or a description: whoever reads it waits for ever."""
    file, _ = _array(place, rng)
    target = file if rng.random() < 0.5 else _chunk(file.parent)
    target.unlink()
    os.mkfifo(target)


def zarr_gone(place: Path, rng: Rng) -> None:
    """A chunk that is not there, is cut short, or is a folder."""
    file, _ = _array(place, rng)
    chunk = _chunk(file.parent)
    content = chunk.read_bytes()
    if rng.random() < 0.5:
        chunk.write_bytes(content[: rng.integers(len(content))])
        return
    chunk.unlink()
    chunk.mkdir()


HDF5: tuple[Callable[[h5py.Group, Rng], None], ...] = (
    unallocated, fixed_texts, long_scalar, large_chunk, deflate_bomb, lzf_bomb, packed_twice, other_filter, link,
    extra_link, kept_elsewhere, virtual, circle, many, odd_type, named_type, no_values, odd_encoding, long_attribute,
    one_text, many_attributes, not_a_table, lists, hidden_texts, filled, tiny_chunks, reference,
)  # fmt: skip
ZARR: tuple[Callable[[Path, Rng], None], ...] = (
    zarr_bomb, zarr_false_length, zarr_many_texts, zarr_shape, zarr_codec, zarr_type, zarr_description, zarr_link,
    zarr_gone, zarr_pipe, zarr_filled, zarr_tiny_chunks,
)  # fmt: skip
#: What may stand anywhere in a file of cells, and the doors that read such a file as a reference.
ANYWHERE: tuple[Callable[[h5py.Group, Rng], None], ...] = (
    unallocated, fixed_texts, long_scalar, deflate_bomb, packed_twice, other_filter, kept_elsewhere, virtual,
    long_attribute, one_text, lists, hidden_texts, filled, tiny_chunks, reference,
)  # fmt: skip
CELL_DOORS = ("annotate", "transfer", "novelty", "transfer --stream")


@cache
def _content() -> bytes:
    """A prior with labels and no cells, as its file."""
    from dice import priors

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "honest.h5ad"
        priors.described_prior(stored_priors.path("labels"), "forged", {}).save(path)
        return path.read_bytes()


@cache
def _cells() -> bytes:
    """The file of a reference that has a prior and something in every slot."""
    cells = stored_priors.cells(60)
    cells.layers["rows"], cells.layers["columns"] = sparse.csr_matrix(cells.X), sparse.csc_matrix(cells.X)
    cells.obsm["dense"], cells.obsm["table"] = cells.X[:, :2].copy(), cells.obs[["label"]].copy()
    cells.obsp["graph"], cells.varm["dense"] = sparse.eye(60, format="csr"), np.zeros((20, 2))
    cells.uns["dice"], cells.uns["nested"] = (
        dice.Prior.load(stored_priors.path("labels")).to_arrays(),
        {"a": {"b": "c"}},
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cells.h5ad"
        cells.write_h5ad(path)
        return path.read_bytes()


@cache
def _store(zarr_format: int) -> Path:
    """The same prior as a store of zarr, which is slow to write."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "honest.zarr")
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    ad.io.write_elem(root, "/", ad.read_h5ad(io.BytesIO(_content())))
    return path


def forge(rng: Rng, folder: Path, change: Callable[[Any, Rng], None] | None = None) -> tuple[str, Path]:
    """A forged file in `folder`, and what was done to it."""
    kinds: Any = HDF5 if rng.random() < 0.7 else ZARR
    change = change or kinds[rng.integers(len(kinds))]
    if change in HDF5:
        path = folder / "forged.h5ad"
        path.write_bytes(_content())
        with h5py.File(path, "a") as file:
            change(file["uns/dice"], rng)
    else:
        path = folder / "forged.zarr"
        shutil.copytree(_store(int(rng.integers(2, 4))), path)
        change(path / "uns" / "dice", rng)
        if rng.random() < 0.5:
            _consolidate(path)
    return change.__name__, path


def _consolidate(path: Path) -> None:
    """One description of all arrays at the root, which zarr takes for theirs; in place of those that are damaged."""
    described: dict[str, Any] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and _describes(file):
            with contextlib.suppress(ValueError, RecursionError):
                described[file.relative_to(path).as_posix()] = json.loads(file.read_text())
    if (path / "zarr.json").exists():
        inner = {name.removesuffix("/zarr.json"): entry for name, entry in described.items() if "/" in name}
        whole = {"kind": "inline", "must_understand": False, "metadata": inner}
        (path / "zarr.json").write_text(json.dumps(described["zarr.json"] | {"consolidated_metadata": whole}))
    else:
        (path / ".zmetadata").write_text(json.dumps({"zarr_consolidated_format": 1, "metadata": described}))


def enter(door: str, path: Path, folder: Path) -> str:
    """What a door says of a file of a prior: one sentence, or nothing if it lets the file in."""
    calls: dict[str, Callable[[], Any]] = {
        "load": lambda: dice.Prior.load(path),
        "verb": lambda: dice.tl.denoise(stored_priors.cells(20), path),
        "shelf": lambda: dice.priors.load("forged"),
    }
    if door.startswith("shelf"):
        (folder / "cache" / "priors").mkdir(parents=True)
        path.replace(folder / "cache" / "priors" / "forged.h5ad")
        os.environ["DICE_CACHE"] = str(folder / "cache")
        if door == "shelf list":
            return "" if "forged" in dice.priors.list().index else "Left out."
    if door in calls:
        try:
            calls[door]()
        except dice.DiceError as error:
            return str(error)
        return ""
    output = folder / "out.h5ad"
    named = [str(path)] if door == "info" else [str(_query(folder)), str(path), "-o", str(output), "--quiet"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main([*door.split(), *named])
    assert code in (0, 1), said.getvalue()
    assert output.exists() == (code == 0 and door != "info")
    return said.getvalue().removesuffix("\n") if code else ""


def warm_up(folder: Path) -> None:
    """Every door lets the honest file in, so that a refusal means something; and all that doors load is loaded."""
    for door in DOORS:
        place = Path(tempfile.mkdtemp(dir=folder))
        (place / "forged.h5ad").write_bytes(_content())
        said = enter(door, place / "forged.h5ad", place)
        assert not said, f"{door}: {said}"
        shutil.rmtree(place)
    for zarr_format in (2, 3):
        dice.Prior.load(_store(zarr_format))
    for door in CELL_DOORS:
        place = Path(tempfile.mkdtemp(dir=folder))
        (place / "forged.h5ad").write_bytes(_cells())
        said = enter(door, place / "forged.h5ad", place)
        assert not said, f"{door}: {said}"
        shutil.rmtree(place)


def _query(folder: Path) -> Path:
    path = folder.parent / "query.h5ad"
    if not path.exists():
        stored_priors.cells(60).write_h5ad(path)
    return path


def verdict(rng: Rng, folder: Path, change: Callable[[Any, Rng], None] | None = None) -> str:
    """``"refused"`` at a random door, fast and with little memory; everything else is an error."""
    place = _emptied(folder)
    kind, path = forge(rng, place, change)
    doors = [door for door in DOORS if path.suffix == ".h5ad" or not door.startswith("shelf")]
    door = doors[rng.integers(len(doors))]
    assert _said(door, path, place, kind), f"{kind} was let in at {door}"
    return "refused"


def verdict_on_cells(rng: Rng, folder: Path, change: Callable[[Any, Rng], None] | None = None) -> str:
    """``"refused"``, fast and with little memory. A stream may accept a matrix that it leaves on disk."""
    place = _emptied(folder)
    path, change = place / "forged.h5ad", change or ANYWHERE[rng.integers(len(ANYWHERE))]
    path.write_bytes(_cells())
    with h5py.File(path, "a") as file:
        change(file, rng)
    door = CELL_DOORS[rng.integers(len(CELL_DOORS))]
    said = _said(door, path, place, change.__name__)
    assert said or door == "transfer --stream", f"{change.__name__} was let in at {door}"
    return "refused" if said else "accepted"


def _emptied(folder: Path) -> Path:
    place = folder / "forged"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def _said(door: str, path: Path, place: Path, kind: str) -> str:
    """What a door says of a file: one sentence, fast and with little memory, or nothing."""
    start, before = time.process_time(), peak_memory(anew=True)
    try:
        said = enter(door, path, place)
    except Exception as error:
        raise AssertionError(f"{kind} at {door}") from error
    seconds, more = time.process_time() - start, peak_memory() - before
    if said:
        assert_sentence(ValueError(said))
    assert "llocate" not in said, f"{kind} at {door}: {said}"
    assert seconds < SECONDS or not said, f"{kind} at {door} took {seconds:.1f} s"
    assert more < BYTES, f"{kind} at {door} took {more / 2**20:.0f} MB"
    return said


def check_fields(raw: dict[str, Any], rng: Rng, folder: Path) -> None:
    """Fields of a prior as a file: a door lets in what `Prior.load` lets in, fast and with little memory."""
    place = _emptied(folder)
    path = place / "forged.h5ad"
    path.write_bytes(_content())
    with h5py.File(path, "a") as file:
        del file["uns/dice"]
        try:
            ad.io.write_elem(file["uns"], "dice", raw)
        except Exception:  # noqa: BLE001 - no file can hold these fields
            return
    door, start, before = DOORS[rng.integers(len(DOORS))], time.process_time(), peak_memory(anew=True)
    loaded = enter("load", path, place)
    seconds, more = time.process_time() - start, peak_memory() - before
    said = enter(door, path, place)
    assert said or not loaded, f"{door} let in what Prior.load refuses: {loaded}"
    for sentence in filter(None, (said, loaded)):
        assert_sentence(ValueError(sentence))
    assert seconds < SECONDS, f"took {seconds:.1f} s"
    assert more < BYTES, f"took {more / 2**20:.0f} MB"


def peak_memory(*, anew: bool = False) -> int:
    """Most bytes that this process has had at once, since it last asked `anew`."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
