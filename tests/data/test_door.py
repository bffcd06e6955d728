"""Every path by which a file enters: forged files are refused in a moment, with little memory and one sentence."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pytest
import stored_priors
import zarr
from scipy import sparse

import dice
from dice._data.door import LONGEST_DESCRIPTION, Walk
from dice._data.files import read
from dice._errors import InputError, PriorFormatError
from dice.cli import main

SOURCE = Path(dice.__file__).parent
TEXT = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
GB = 2**30


@contextmanager
def little_memory():
    """At most 1 GB more than now, and at most 5 seconds."""
    if not sys.platform.startswith("linux"):
        pytest.skip("memory is limited on Linux only")
    import resource

    used = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + GB, hard))
    start = time.process_time()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    assert time.process_time() - start < 5


def unallocated(prior):
    del prior["format"]
    prior.create_dataset("format", (1_200_000_000,), "i8").attrs.update(
        {"encoding-type": "array", "encoding-version": "0.2.0"}
    )


def fixed_texts(length, n):
    def forge(prior):
        del prior["genes"]
        data = prior.create_dataset("genes", (n,), f"S{length}", chunks=(1,), compression="gzip")
        data.attrs.update(TEXT)

    return forge


def long_card(prior):
    for name in ("params", "sha256"):
        del prior[name]
        prior.create_dataset(name, (), "S2000000000").attrs.update(TEXT | {"encoding-type": "string"})


def shared_text(prior):
    """An attribute of 3,901 texts that are all one text of 4 MB."""
    del prior["mean"].attrs["encoding-type"]
    prior["mean"].attrs["encoding-type"] = np.array(["x" * 4_000_000] + ["y"] * 3900, dtype=object)
    path = Path(prior.file.filename)
    prior.file.close()
    content = path.read_bytes()
    record = content.index((4_000_000).to_bytes(4, "little") + content[0:0], 0)
    while content[record + 16 : record + 20] != (1).to_bytes(4, "little"):
        record = content.index((4_000_000).to_bytes(4, "little"), record + 1)
    path.write_bytes(content[:record] + content[record : record + 16] * 3901 + content[record + 16 * 3901 :])


def false_length(prior):
    """An attribute whose text says that it has 4 GB: the library would allocate them before it looks."""
    del prior["mean"].attrs["encoding-type"]
    prior["mean"].attrs["encoding-type"] = "x" * 54_321
    path = Path(prior.file.filename)
    prior.file.close()
    content = path.read_bytes()
    needle = (54_321).to_bytes(4, "little")
    assert content.count(needle) == 2  # the record, and the text itself
    path.write_bytes(content.replace(needle, b"\xf0\xff\xff\xff"))


def lists_of_texts(prior):
    """An attribute of lists of long texts: their lengths count entries, not bytes."""
    del prior["mean"].attrs["encoding-type"]
    lists = np.empty(2, dtype=object)
    lists[:] = [np.zeros(70, "S50000"), np.zeros(1, "S50000")]
    prior["mean"].attrs.create("encoding-type", lists, dtype=h5py.vlen_dtype(np.dtype("S50000")))


def link(prior):
    file = prior.file
    del file["uns/dice"]
    file["uns/dice"] = h5py.ExternalLink(str(stored_priors.path("labels")), "/uns/dice")


KINDS = {
    "unallocated": (unallocated, "'.*format' increases the unpacked size to"),
    "long names": (
        fixed_texts(60_000_000, 2_000),
        "'.*genes' (increases the unpacked size to|has an unsupported compression)",
    ),
    "many names": (fixed_texts(1_000_000, 200_000), "'.*genes' increases the unpacked size to"),
    "long card": (long_card, "increases the unpacked size to"),
    "shared text": (shared_text, "'.*mean' increases the unpacked size to"),
    "false length": (false_length, "'.*mean' increases the unpacked size to"),
    "lists": (lists_of_texts, "'.*mean' has an unsupported layout"),
    "link": (link, "'dice' is a link to somewhere else"),
}


@pytest.fixture(scope="module")
def query(tmp_path_factory):
    path = tmp_path_factory.mktemp("query") / "query.h5ad"
    stored_priors.cells(60).write_h5ad(path)
    return path


@pytest.fixture(params=KINDS)
def forged(request, tmp_path):
    forge, sentence = KINDS[request.param]
    path = tmp_path / "forged.h5ad"
    shutil.copy(stored_priors.path("labels"), path)
    with h5py.File(path, "a") as file:
        forge(file["uns/dice"])
    assert path.stat().st_size < 10e6
    return path, sentence


def test_a_forged_prior_is_refused_at_every_door(forged, query, tmp_path, capsys):
    path, sentence = forged
    with little_memory(), pytest.raises(dice.DiceError, match=sentence):
        dice.Prior.load(path)
    with little_memory(), pytest.raises(dice.DiceError, match=sentence):
        dice.tl.denoise(stored_priors.cells(20), path)
    commands = {name: [] for name in ("annotate", "transfer", "novelty", "denoise", "cluster")}
    commands["transfer --stream"] = commands["annotate"] = ["--labels", "label"]
    for name, more in commands.items():
        with little_memory():
            code = main([*name.split(), str(query), str(path), "-o", str(tmp_path / "out.h5ad"), "--quiet", *more])
        said = capsys.readouterr().err
        assert code == 1
        assert re.search(sentence, said), said
        assert said.count("\n") == 1
    assert not (tmp_path / "out.h5ad").exists()


@pytest.mark.parametrize("forge", [link, unallocated], ids=["link", "unallocated"])
def test_a_forged_query_is_refused(forge, tmp_path, capsys):
    path = tmp_path / "forged.h5ad"
    shutil.copy(stored_priors.path("labels"), path)
    with h5py.File(path, "a") as file:
        forge(file["uns/dice"])
    for command in ("prepare", "train"):
        with little_memory():
            assert main([command, str(path), "-o", str(tmp_path / "out.h5ad"), "--quiet"]) == 1
        assert re.search("a link to somewhere else|unpacked size", capsys.readouterr().err)


def test_a_codec_that_unpickles_is_refused_in_cells_too(tmp_path, query, capsys):
    store = zarr.open_group(tmp_path / "cells.zarr", mode="w", zarr_format=2)
    ad.io.write_elem(store, "/", stored_priors.cells(20))
    description = tmp_path / "cells.zarr" / "obs" / "_index" / ".zarray"
    text = description.read_text()
    description.write_text(re.sub(r'("id": "vlen-utf8"\s*\})', r'\1, {"id": "pickle", "protocol": 5}', text))
    assert description.read_text() != text
    for command in ("annotate", "transfer", "novelty"):
        arguments = [command, str(query), str(tmp_path / "cells.zarr"), "-o", str(tmp_path / "out.h5ad"), "--quiet"]
        assert main(arguments) == 1
        assert "'obs/_index' has an unsupported compression" in capsys.readouterr().err


def test_a_folder_of_cells_with_a_link_is_refused(tmp_path):
    stored_priors.cells(20).write_zarr(tmp_path / "cells.zarr")
    (tmp_path / "cells.zarr" / "X").rename(tmp_path / "elsewhere")
    (tmp_path / "cells.zarr" / "X").symlink_to(tmp_path / "elsewhere")
    for reader in (read, dice.read_lazy):
        with pytest.raises(dice.DiceError, match="is a link to somewhere else"):
            reader(tmp_path / "cells.zarr")


@pytest.mark.parametrize("name", ["X/0.0", "X/.zarray", "uns/pipe", ".zgroup"])
def test_a_folder_with_a_pipe_is_refused(tmp_path, name):
    """Whoever reads a pipe waits for ever."""
    store = zarr.open_group(tmp_path / "cells.zarr", mode="w", zarr_format=2)
    ad.io.write_elem(store, "/", stored_priors.cells(20))
    file = tmp_path / "cells.zarr" / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    for reader in (read, dice.read_lazy, dice.Prior.load):
        with pytest.raises(dice.DiceError, match="is neither a file nor a folder"):
            reader(tmp_path / "cells.zarr")


@pytest.mark.parametrize("name", ["X/.zarray", "obs/.zattrs", ".zmetadata", "uns/zarr.json"])
def test_a_folder_with_a_description_without_end_is_refused(tmp_path, name):
    """A description is read as a whole."""
    store = zarr.open_group(tmp_path / "cells.zarr", mode="w", zarr_format=2)
    ad.io.write_elem(store, "/", stored_priors.cells(20))
    file = tmp_path / "cells.zarr" / name
    with file.open("ab") as description:
        description.truncate(LONGEST_DESCRIPTION + 1)
    for reader in (read, dice.read_lazy, dice.Prior.load):
        with little_memory(), pytest.raises(dice.DiceError, match="is too large to describe arrays"):
            reader(tmp_path / "cells.zarr")


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_honest_files_pass_as_they_are(tmp_path, compression):
    cells = stored_priors.cells(50)
    cells.obs["text"] = [f"é{i}" * (i % 7) for i in range(50)]
    cells.uns["nested"] = {"a": {"b": {"c": np.arange(3)}}, "names": np.array(["x", "yy"])}
    cells.write_h5ad(tmp_path / "cells.h5ad", compression=compression)
    found = read(tmp_path / "cells.h5ad")
    assert list(found.obs["text"].astype(str)) == list(cells.obs["text"])
    with h5py.File(tmp_path / "cells.h5ad") as file:
        walk = Walk(tmp_path / "cells.h5ad", 10**9, InputError)
        walk.check(file)
        exact = Walk(tmp_path / "cells.h5ad", walk.n_bytes, InputError)
        exact.check(file)
        with pytest.raises(InputError, match="increases the unpacked size to"):
            Walk(tmp_path / "cells.h5ad", walk.n_bytes - 1, InputError).check(file)


ARRAY = {"encoding-type": "array", "encoding-version": "0.2.0"}


def _flags(file):
    file["obsm"].create_dataset("x", (3 * 10**9,), "?").attrs.update(ARRAY)


def _table(file):
    table = file["obsm"].create_group("x")
    table.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "i", "column-order": []})
    table.create_dataset("i", (10**9,), "i8").attrs.update(ARRAY)


def _tall(file):
    file["obsm"].create_dataset("x", (2**58,), "f4").attrs.update(ARRAY)


def _sparse(shape, n_pointers, kind="csr"):
    def forge(file):
        matrix = file["obsm"].create_group("x")
        matrix.attrs.update({"encoding-type": f"{kind}_matrix", "encoding-version": "0.1.0", "shape": shape})
        for name, dtype in (("data", "f4"), ("indices", "i8"), ("indptr", "i8")):
            matrix.create_dataset(name, (n_pointers if name == "indptr" else 9,), dtype)

    return forge


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (_flags, "'obsm/x' increases the unpacked size to 2,861 MB"),
        (_table, "'obsm/x/i' increases the unpacked size to 7,629 MB"),
        (_sparse((8, 20), 10**9), "'obsm/x/indptr' increases the unpacked size to"),
        (_tall, "'/obsm/x' has a shape that does not fit its file"),
        (_sparse((10**13, 20), 9), "'/obsm/x' has a shape that does not fit its file"),
        (_sparse((8, 10**14), 9, "csc"), "'/obsm/x' has a shape that does not fit its file"),
    ],
    ids=["flags", "table", "pointers", "tall", "many rows", "many columns"],
)
def test_a_stream_is_refused_by_what_it_would_read(tmp_path, forge, sentence):
    """Tables and pointers of matrices are read at once; too many chunks had no end. A file of 90 KB took 5 GB."""
    path = tmp_path / "cells.h5ad"
    shutil.copy(stored_priors.path("labels"), path)
    with h5py.File(path, "a") as file:
        forge(file)
    with little_memory(), pytest.raises(InputError, match=sentence):
        dice.read_lazy(path)


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_a_stream_leaves_matrices_on_disk_uncounted(tmp_path, suffix, monkeypatch):
    """Of any size: what the caller streams may be larger than the memory. A table in `obsm` counts."""
    cells = stored_priors.cells(2_000)
    cells.layers["rows"], cells.layers["columns"] = sparse.csr_matrix(cells.X), sparse.csc_matrix(cells.X)
    cells.obsm["x"], cells.obsp["graph"] = cells.X.copy(), sparse.eye(2_000, format="csr")
    path = tmp_path / f"cells.{suffix}"
    getattr(cells, f"write_{suffix}")(path)
    monkeypatch.setattr("dice._data.files.size_limit", lambda path: 10**6)
    found = dice.read_lazy(path)
    np.testing.assert_array_equal(found.layers["columns"].compute().toarray(), cells.X)
    with pytest.raises(InputError, match="increases the unpacked size to 1 MB"):
        read(path)


def test_a_larger_prior_is_read_if_the_caller_says_so():
    path = stored_priors.path("plain")
    with pytest.raises(dice.DiceError, match="the limit is 0 MB"):
        dice.Prior.load(path, max_bytes=1000)
    assert dice.Prior.load(path, max_bytes=10**6).n_latent == 3


@pytest.mark.parametrize(("n", "what"), [(10_001, InputError), (1_001, PriorFormatError)])
def test_a_file_of_very_many_arrays_is_refused(tmp_path, n, what):
    """Of cells, and with a prior that has fewer: both would be read one by one."""
    path = tmp_path / "cells.h5ad"
    ad.AnnData(np.zeros((2, 2), np.float32), uns={"many": {"format": 1}}).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        for index in range(n):
            file["uns/many"][f"w{index}"] = file["uns/many/format"]
    with little_memory(), pytest.raises(what, match=f"many' exceeds the limits of {n - 1:,} arrays"):
        read(path)


def test_attributes_of_the_newer_layout_are_measured(tmp_path):
    """Headers of the second version; attributes in a heap of their own are refused."""
    with h5py.File(tmp_path / "new.h5", "w", libver="latest") as file:
        file.attrs["text"] = "x" * 1000
        file.create_group("many").attrs.update({f"a{i}": "b" for i in range(20)})
    with h5py.File(tmp_path / "new.h5") as file:
        with pytest.raises(InputError, match="'many' has an unsupported layout"):
            Walk(tmp_path / "new.h5", 10**6, InputError).check(file)
        with pytest.raises(InputError, match="unpacked size"):
            Walk(tmp_path / "new.h5", 999, InputError).check(file)


def test_attributes_of_every_plain_type_pass(tmp_path):
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        data = file.create_dataset("codes", data=np.arange(3))
        data.attrs.update({"number": 1.5, "many": np.arange(9), "flag": True, "fixed": np.bytes_("abc"), "text": "é"})
    with h5py.File(tmp_path / "plain.h5") as file:
        walk = Walk(tmp_path / "plain.h5", 10**6, InputError)
        walk.check(file)
        assert walk.n_nodes == 2


def _old_column(file, categories):
    """A column of labels as AnnData 0.7 wrote it: codes, and a reference to their categories."""
    obs = file["obs"]
    codes = obs["label"]["codes"][...] % 2
    del obs["label"]
    obs.attrs["encoding-version"] = "0.1.0"
    obs.create_dataset("label", data=codes).attrs.update(ARRAY | {"categories": categories(file).ref})


def _text_array(group, name, **made):
    data = group.create_dataset(name, **({"data": ["a", "b"], "dtype": h5py.string_dtype()} | made))
    data.attrs.update(TEXT)
    return data


@pytest.fixture
def old(tmp_path):
    """A file of cells, whose labels are about to be written as they once were."""
    stored_priors.cells(9).write_h5ad(tmp_path / "old.h5ad")
    return tmp_path / "old.h5ad"


def test_categories_of_an_old_file_are_read(old):
    with h5py.File(old, "a") as file:
        _old_column(file, lambda file: _text_array(file["obs"].create_group("__categories"), "label"))
    for reader in (read, dice.read_lazy):
        assert list(reader(old).obs["label"]) == list("aba" * 3)


@pytest.mark.parametrize("as_text", [False, True])
def test_a_reference_to_anything_but_the_own_categories_is_refused(old, as_text):
    """It can lead to an array without a name, and from there to a file of the reader, or to a matrix on disk."""
    with h5py.File(old, "a") as file:
        _text_array(file["obs"].create_group("__categories"), "label")
        _old_column(file, lambda file: _text_array(file["uns"], "other"))
        if as_text:
            file["obs/label"].attrs["categories"] = "/X"
    for reader in (read, dice.read_lazy):
        with pytest.raises(InputError, match="'obs/label' refers to something that is not its categories"):
            reader(old)


@pytest.mark.parametrize(("categories", "is_own"), [("__categories/label", True), ("../X", False), ("label", False)])
def test_categories_of_an_old_store_are_its_own(tmp_path, categories, is_own):
    stored_priors.cells(9).write_zarr(tmp_path / "old.zarr")
    root = zarr.open_group(tmp_path / "old.zarr", use_consolidated=False)
    codes = root["obs/label/codes"][...] % 2
    del root["obs/label"]
    root["obs"].attrs["encoding-version"] = "0.1.0"
    ad.io.write_elem(root["obs"].require_group("__categories"), "label", np.array(["a", "b"]))
    root.create_array("obs/label", data=codes, attributes=ARRAY | {"categories": categories})
    (tmp_path / "old.zarr" / ".zmetadata").unlink(missing_ok=True)
    if is_own:
        assert list(read(tmp_path / "old.zarr").obs["label"]) == list("aba" * 3)
        return
    with pytest.raises(InputError, match="'obs/label' refers to something that is not its categories"):
        read(tmp_path / "old.zarr")


def test_chunks_without_end_are_refused(tmp_path):
    """Fifty million chunks that are not stored took 9 GB, in a file of 900 KB."""
    path = shutil.copy(stored_priors.path("plain"), tmp_path / "prior.h5ad")
    with h5py.File(path, "a") as file:
        del file["uns/dice/mean"]
        file["uns/dice"].create_dataset("mean", (5 * 10**7,), "f4", chunks=(1,)).attrs.update(ARRAY)
    for reader in (read, dice.Prior.load):
        with little_memory(), pytest.raises(dice.DiceError, match="mean' increases the unpacked size"):
            reader(path)


def test_chunks_of_a_folder_without_end_are_refused(tmp_path):
    stored_priors.cells(9).write_zarr(tmp_path / "cells.zarr")
    root = zarr.open_group(tmp_path / "cells.zarr", use_consolidated=False)
    root.create_array("obsm/x", shape=(5 * 10**7,), chunks=(1,), dtype="f4", attributes=ARRAY)
    (tmp_path / "cells.zarr" / ".zmetadata").unlink(missing_ok=True)
    with little_memory(), pytest.raises(InputError, match="'obsm/x' increases the unpacked size"):
        read(tmp_path / "cells.zarr")


def test_a_table_that_repeats_its_columns_is_refused(tmp_path):
    """Each is read again."""
    stored_priors.cells(9).write_zarr(tmp_path / "cells.zarr")
    table = zarr.open_group(tmp_path / "cells.zarr", use_consolidated=False)["obs"]
    table.attrs["column-order"] = ["label"] * 300_000
    (tmp_path / "cells.zarr" / ".zmetadata").unlink(missing_ok=True)
    with little_memory(), pytest.raises(InputError, match="'obs' names more columns than it has"):
        read(tmp_path / "cells.zarr")


def test_a_checkpoint_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "state.npz", fingerprint=np.zeros(10**6))
    monkeypatch.setattr("dice._data.door.LIMIT", 10**6)
    training = dice.Training(max_steps=5, checkpoint=tmp_path / "state.npz")
    with pytest.raises(dice.DiceError, match="cannot be read") as caught:
        dice.tl.train_prior(stored_priors.cells(60), n_latent=3, training=training)
    assert "would unpack to 8 MB, more than any checkpoint" in str(caught.value.__cause__)


def test_nothing_else_opens_files():
    """One reader for files of unknown origin: who opens one otherwise has made it himself, or knows its checksum."""
    opens = re.compile(r"read_h5ad\(|read_zarr\(|h5py\.File\(|zarr\.open|read_elem\(|np\.load\(|torch\.load")
    allowed = {
        "_data/door.py", "_data/files.py",  # the door itself, and a store of our own
        "_data/lengths.py",  # files in memory
        "_data/store.py",  # Prior.load and Prior.save
        "_train/train.py",  # the checkpoint, after check_archive
        "datasets/_real.py",  # files with known checksums
    }  # fmt: skip
    found = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if opens.search(_code(path))}
    assert found <= allowed, found - allowed


def _code(path):
    """The text of a module without examples and strings of several lines."""
    return re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
