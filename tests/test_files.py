"""Files and stores that are written whole or not at all, and what stands in their way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import anndata as ad
import numpy as np
import pytest
import stored_priors
from scipy import sparse

import dice
from dice._data.files import read, write_file
from dice._files import atomic, check_target, replace_store
from dice.cli import SUFFIXES, main

FIXTURE = stored_priors.path("plain")
needs_proc = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc, where nobody can make a file")


def obstacle(path, **options):
    """The sentence about a place that cannot be written."""
    with pytest.raises(dice.DiceError) as caught:
        check_target(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_in_the_way_is_said(tmp_path):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.write_text("old")
    (folder / "notes.txt").write_text("mine")
    assert "(it is a folder)" in obstacle(folder)
    assert "(it is a file)" in obstacle(file, store=True)
    assert "(it is a folder with other files)" in obstacle(folder, store=True)
    assert f"(there is no folder {str(tmp_path / 'no')!r})" in obstacle(tmp_path / "no" / "file")
    assert "(there is no folder" in obstacle(file / "file")
    assert "must be a file name" in obstacle(3)
    assert "must be a file name" in obstacle("out\0")
    assert "File name too long" in obstacle(tmp_path / ("x" * 250))
    assert obstacle(folder, argument="checkpoint=").startswith("checkpoint='")
    assert file.read_text() == "old"
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_prior_is_not_saved_in_place_of_other_things(tmp_path):
    prior, loop = dice.Prior.load(FIXTURE), tmp_path / "loop"
    link(loop, loop)
    with pytest.raises(dice.DiceError, match="its links lead in a circle"):
        prior.save(loop)
    with pytest.raises(dice.DiceError, match="must be a file name"):
        prior.save(5)
    assert loop.is_symlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_pipes_and_devices_are_no_outputs(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "(it is a device or a pipe)" in obstacle(pipe)
    with pytest.raises(dice.DiceError, match="it is a device or a pipe"), atomic(pipe):
        pytest.fail("begun")
    assert pipe.is_fifo()


def test_files_are_flushed_as_every_system_allows(tmp_path, monkeypatch):
    """Windows flushes no file that was opened for reading alone."""
    fcntl = pytest.importorskip("fcntl")
    modes = []
    monkeypatch.setattr(os, "fsync", lambda number: modes.append(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE))
    with atomic(tmp_path / "out") as draft:
        draft.write_text("new")
    assert modes == [os.O_RDWR]


def test_what_can_be_written_is_left_as_it_is(tmp_path):
    store, empty, file = tmp_path / "cells.zarr", tmp_path / "empty.zarr", tmp_path / "file"
    ad.AnnData(np.zeros((3, 2), np.float32)).write_zarr(store)
    empty.mkdir()
    file.write_text("old")
    for path in (store, empty, tmp_path / "new.zarr"):
        assert check_target(path, store=True) == path
    for path in (file, str(tmp_path / "new")):
        assert check_target(path) == Path(path)
    assert {path.name for path in tmp_path.iterdir()} == {"cells.zarr", "empty.zarr", "file"}
    assert file.read_text() == "old"


@needs_proc
def test_a_file_system_that_refuses_is_found_by_trying():
    """Root may write everywhere, as far as rights tell."""
    for store in (False, True):
        assert "cannot be written (No such file or directory)" in obstacle("/proc/out", store=store)


def test_a_full_disk_is_found_by_trying(tmp_path, monkeypatch):
    def full(self, content):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert "(No space left on device)" in obstacle(tmp_path / "out")
    assert not list(tmp_path.iterdir())


#: Commands with an output, each of which has to be told of it before anything is read.
COMMANDS = {
    "annotate": ("query", "reference", "-o"), "prepare": ("query", "-o"), "train": ("reference", "-o"),
    "denoise": ("query", "reference", "-o"), "cluster": ("query", "-o"), "transfer": ("query", "reference", "-o"),
    "novelty": ("query", "reference", "-o"), "report": ("query", "-o"),
    "evaluate": ("query", "--labels", "x", "--table"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_look_at_their_output_first(command, tmp_path, capsys):
    """The input does not exist either, but it is the output that is told of."""
    folder = tmp_path / "folder.h5ad"
    folder.mkdir()
    (tmp_path / "file.zarr").write_text("old")
    outputs = {folder: "(it is a folder)", tmp_path / "no" / "out.h5ad": "(there is no folder"}
    if command not in ("report", "evaluate"):
        outputs[tmp_path / "file.zarr"] = "(it is a file)"
    for output, reason in outputs.items():
        assert main([command, *COMMANDS[command], str(output), "--quiet"]) == 1
        said = capsys.readouterr().err
        assert reason in said
        assert said.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"folder.h5ad", "file.zarr"}


def test_second_outputs_are_looked_at_first_too(tmp_path, capsys):
    for flag in ("--report", "--trained"):
        more = (flag, str(tmp_path / "no" / "out.h5ad"))
        assert main(["annotate", "query", "reference", "-o", str(tmp_path / "out.h5ad"), *more]) == 1
        assert "(there is no folder" in capsys.readouterr().err
    with pytest.raises(dice.DiceError, match="it is a folder"):
        dice.pl.report(None, tmp_path)


def test_one_file_is_not_two_outputs(tmp_path, capsys):
    """The last one that is written would be all that is left."""
    same = str(tmp_path / "same.h5ad")
    for flag in ("--report", "--trained", "--checkpoint"):
        other = str(tmp_path / "." / "same.h5ad")
        assert main(["annotate", "query", "reference", "-o", same, flag, other]) == 1
        assert f"--output and {flag} are the same file" in capsys.readouterr().err
    assert main(["train", "reference", "-o", same, "--checkpoint", same]) == 1
    assert "--output and --checkpoint are the same file" in capsys.readouterr().err


def test_a_file_that_has_no_room_is_not_begun(tmp_path, monkeypatch):
    """Where the disk is full, HDF5 ends the process."""
    output = tmp_path / "out.h5ad"
    write_file(cells(1), output)
    large = ad.AnnData(sparse.random_array((100, 80), density=0.5, format="csr", dtype=np.float32, rng=0))
    large.obsm["X_dice"] = np.ones((100, 5), np.float32)
    taken = large.X.nnz * 8 + 2000
    free = [taken - 1]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free[0]))
    with pytest.raises(dice.DiceError, match=r"needs 0\.0 MB or more, but 0\.0 MB are free: make room"):
        write_file(large, output)
    assert read(output).n_obs == 3
    free[0] = taken
    write_file(large, output)
    assert read(output).n_obs == 100


FULL = """
import resource, signal, sys
import anndata as ad, numpy as np
from pathlib import Path
from dice._data.files import write_file
cells = ad.AnnData(np.random.default_rng(0).random((500, 300), dtype=np.float32))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    write_file(cells, Path(sys.argv[1]))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of file sizes")
@pytest.mark.parametrize("limit", [1000, 100_000])
def test_a_disk_that_fills_up_is_told_without_the_words_of_hdf5(limit, tmp_path):
    """HDF5 fails in two ways: while it writes, and when it closes a file whose end it has kept back."""
    output = tmp_path / "out.h5ad"
    output.write_text("old")
    run = subprocess.run([sys.executable, "-c", FULL, output, str(limit)], capture_output=True, text=True)
    expected = f"FileError {str(output)!r} cannot be written (File too large): pass a path in a folder that exists"
    assert run.stdout.lower().startswith(expected.lower()), run
    assert run.stdout.count("\n") == 1
    assert "errno" not in run.stdout + run.stderr
    assert output.read_text() == "old"
    assert list(tmp_path.iterdir()) == [output]


def test_other_errors_are_left_alone(tmp_path):
    with pytest.raises(RuntimeError, match="of another kind"), atomic(tmp_path / "out"):
        raise RuntimeError("of another kind")
    assert not list(tmp_path.iterdir())


def cells(value=0, n=3):
    return ad.AnnData(np.full((n, 2), value, np.float32))


def link(path, target):
    try:
        path.symlink_to(target)
    except OSError:
        pytest.skip("this user may not make links")
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("there", [True, False])
def test_links_are_followed(suffix, there, tmp_path):
    """A link stays one, also one to a file that is not there yet, and to a folder on another disk."""
    (tmp_path / "disk").mkdir()
    real = tmp_path / "disk" / f"real{suffix}"
    if there:
        write_file(cells(1), real)
    output = link(tmp_path / f"out{suffix}", Path("disk") / real.name)
    assert check_target(output, store=output.suffix == ".zarr") == output
    write_file(cells(2), output)
    assert output.is_symlink()
    assert not real.is_symlink()
    assert read(real).X[0, 0] == 2
    assert list((tmp_path / "disk").iterdir()) == [real]
    assert {path.name for path in tmp_path.iterdir()} == {"disk", output.name}


def test_links_to_nowhere_are_told(tmp_path):
    link(tmp_path / "one", tmp_path / "two").with_name("two").symlink_to(tmp_path / "one")
    assert "(its links lead in a circle)" in obstacle(tmp_path / "one")
    assert "(there is no folder" in obstacle(link(tmp_path / "lost", tmp_path / "no" / "file"))
    assert "(it is a folder)" in obstacle(link(tmp_path / "folder", tmp_path))


def test_a_prior_and_a_stream_follow_links(tmp_path):
    prior, query = dice.Prior.load(FIXTURE), ad.AnnData(np.ones((6, 20), np.float32))
    query.var_names = prior.genes.astype(str)
    for name in ("prior.h5ad", "denoised.zarr"):
        (tmp_path / name).mkdir()
        link(tmp_path / f"link_{name}", tmp_path / name / name)
    prior.save(tmp_path / "link_prior.h5ad")
    assert dice.Prior.load(tmp_path / "prior.h5ad" / "prior.h5ad").sha256 == prior.sha256
    for again in (False, True):
        dice.tl.denoise_to_zarr(query, prior, tmp_path / "link_denoised.zarr", overwrite=again, check=False)
        assert ad.read_zarr(tmp_path / "denoised.zarr" / "denoised.zarr").obsm["X_dice"].shape[0] == 6
    assert all((tmp_path / f"link_{name}").is_symlink() for name in ("prior.h5ad", "denoised.zarr"))
    for name in ("prior.h5ad", "denoised.zarr"):
        assert [path.name for path in (tmp_path / name).iterdir()] == [name]


WRITER = """
import sys
import anndata as ad, numpy as np
from pathlib import Path
from dice._data.files import write_file
output, value = Path(sys.argv[1]), float(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(25):
    write_file(ad.AnnData(np.full((50, 20), value, np.float32)), output)
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_two_processes_that_write_one_output_leave_one_whole_file(suffix, tmp_path):
    output = tmp_path / f"out{suffix}"
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", WRITER, output, str(value)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for value in (1, 2)
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        assert writer.communicate(timeout=120)[1] == ""
        assert writer.returncode == 0
    values = read(output).X
    assert values.shape == (50, 20)
    assert len(np.unique(values)) == 1
    assert list(tmp_path.iterdir()) == [output]


def stores(folder, *values):
    """Stores that differ in one value."""
    for value in values:
        cells(value).write_zarr(folder / f"{value}.zarr")
    return [folder / f"{value}.zarr" for value in values]


def test_a_store_that_comes_in_between_is_replaced_too(tmp_path, monkeypatch):
    target, ours, theirs = stores(tmp_path, 0, 1, 2)
    rename = Path.rename

    def late(self, other):
        if self == ours and theirs.exists():
            rename(theirs, target)
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", late)
    replace_store(ours, target)
    assert ad.read_zarr(target).X[0, 0] == 1
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_old_store_goes_back_where_the_new_one_does_not_come(error, tmp_path, monkeypatch):
    target, ours = stores(tmp_path, 0, 1)
    rename = Path.rename

    def refuse(self, other):
        if self == ours:
            raise error
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(type(error)):
        replace_store(ours, target)
    assert ad.read_zarr(target).X[0, 0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {target.name, ours.name}


@contextmanager
def ordinary_user():
    """Rights hold for everybody but root, who is somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    pwd = pytest.importorskip("pwd")
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("root may write everywhere, and there is no user 'nobody' to be instead")
    group = os.getegid()
    os.setegid(nobody.pw_gid)
    os.seteuid(nobody.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


@pytest.fixture
def read_only():
    """A folder with a file and a store that everybody may read and nobody may change.

    Not pytest's own, into which no other user may look.
    """
    if sys.platform == "win32":
        pytest.skip("rights of folders are other ones on Windows")
    above = Path(tempfile.mkdtemp())
    above.chmod(0o755)
    folder = above / "read_only"
    folder.mkdir()
    for suffix in SUFFIXES:
        write_file(cells(1), folder / f"old{suffix}")
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(above)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_read_only_folder_is_found_before_the_work(command, read_only, capsys):
    """For new files and for old ones, which may be replaced no more than added to."""
    suffixes = SUFFIXES if command not in ("report", "evaluate") else (".h5ad",)
    before = sorted(path.name for path in read_only.rglob("*"))
    main([command, *COMMANDS[command], "/no/out.h5ad", "--quiet"])  # All is imported while we may.
    capsys.readouterr()
    with ordinary_user():
        for output in (read_only / f"{name}{suffix}" for name in ("new", "old") for suffix in suffixes):
            assert main([command, *COMMANDS[command], str(output), "--quiet"]) == 1
            said = capsys.readouterr().err
            assert f"{str(output)!r} cannot be written (Permission denied)" in said
            assert said.count("\n") == 1
    assert sorted(path.name for path in read_only.rglob("*")) == before


def test_a_read_only_folder_is_told_by_every_call_that_writes(read_only):
    prior, query = dice.Prior.load(FIXTURE), ad.AnnData(np.ones((6, 20), np.float32))
    query.var_names = prior.genes.astype(str)
    calls = [
        lambda folder: prior.save(folder / "prior.h5ad"),
        lambda folder: dice.tl.denoise_to_zarr(query, prior, folder / "new.zarr", check=False),
        lambda folder: dice.tl.train_prior(query, training=dice.Training(checkpoint=folder / "state"), check=False),
        lambda folder: dice.pl.report(query, folder / "report.html"),
        lambda folder: write_file(query, folder / "old.h5ad"),
        lambda folder: write_file(query, folder / "old.zarr"),
    ]
    for call in calls:
        with pytest.raises(dice.DiceError, match="cannot be written"):  # All is imported while we may.
            call(read_only / "old.h5ad")
        with ordinary_user(), pytest.raises(dice.DiceError, match=r"cannot be written \(Permission denied\)"):
            call(read_only)
    assert {path.name for path in read_only.iterdir()} == {"old.h5ad", "old.zarr"}
    assert read(read_only / "old.h5ad").X[0, 0] == read(read_only / "old.zarr").X[0, 0] == 1


INPUTS = {
    "annotate": ["query.h5ad", "prior.h5ad"], "transfer": ["query.h5ad", "prior.h5ad"],
    "novelty": ["query.h5ad", "prior.h5ad"], "denoise": ["query.h5ad", "prior.h5ad"],
    "cluster": ["query.h5ad", "prior.h5ad"], "prepare": ["query.h5ad"], "train": ["query.h5ad"],
    "report": ["query.h5ad", "--reference", "prior.h5ad"],
}  # fmt: skip


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """A folder to work in, with a query and a prior that must not change."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXTURE, "prior.h5ad")
    stored_priors.cells(60).write_h5ad("query.h5ad")
    before = {name: Path(name).read_bytes() for name in ("prior.h5ad", "query.h5ad")}
    yield before
    assert {name: Path(name).read_bytes() for name in before} == before


@pytest.mark.parametrize("command", INPUTS)
def test_an_input_is_no_output(command, inputs, capsys):
    """`dice transfer q.h5ad prior.h5ad -o prior.h5ad` replaced the prior by the query."""
    for name in inputs:
        if name not in INPUTS[command]:
            continue
        Path(f"soft_{name}").symlink_to(name)
        os.link(name, f"hard_{name}")
        for output in (name, f"./../{Path.cwd().name}/{name}", f"soft_{name}", f"hard_{name}"):
            assert main([command, *INPUTS[command], "-o", output, "--quiet"]) == 1
            said = capsys.readouterr().err
            assert "is an input of the command and would be lost" in said
            assert "--overwrite-input" in said


@pytest.mark.parametrize("flag", ["--trained", "--report", "--checkpoint"])
def test_further_outputs_are_no_inputs(flag, inputs, capsys):
    assert main(["annotate", "query.h5ad", "prior.h5ad", "-o", "out.h5ad", flag, "prior.h5ad"]) == 1
    assert f"dice: The output {flag} 'prior.h5ad' is an input" in capsys.readouterr().err
    assert main(["evaluate", "query.h5ad", "--labels", "label", "--table", "query.h5ad"]) == 1
    assert "dice: The output --table 'query.h5ad' is an input" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:The prior's genes sum to")
def test_the_tree_of_the_labels_is_no_output(inputs, capsys):
    """`dice annotate --hierarchy tree.csv --report tree.csv` replaced the tree by the page."""
    Path("tree.csv").write_text("child,parent\nalpha,top\n")
    more = ["--labels", "label", "--hierarchy", "tree.csv", "--report", "tree.csv", "--quiet"]
    assert main(["annotate", "query.h5ad", "prior.h5ad", "-o", "out.h5ad", *more]) == 1
    assert "dice: The output --report 'tree.csv' is an input" in capsys.readouterr().err
    levels = dice.Levels("label", "tree.csv")
    with pytest.raises(dice.DiceError, match="is an input of this call and would be lost"):
        dice.tl.annotate(stored_priors.cells(60), "prior.h5ad", levels, report="tree.csv")
    assert Path("tree.csv").read_text().startswith("child")


@pytest.mark.filterwarnings("ignore:The prior's genes sum to")
def test_a_prior_of_the_shelf_is_no_output(inputs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DICE_CACHE", str(tmp_path / "cache"))
    path = dice.priors.save("prior.h5ad", "mine")
    before = path.read_bytes()
    assert main(["transfer", "query.h5ad", "mine", "-o", str(path), "--quiet"]) == 1
    assert "is an input of the command and would be lost" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.filterwarnings("ignore:The prior's genes sum to")
def test_a_folder_of_the_user_is_left_alone(inputs):
    """Drafts were once kept in OUTPUT.partial, and deleted whatever was there."""
    stored_priors.cells(60).write_zarr("out.zarr.partial")
    before = sorted(file.name for file in Path("out.zarr.partial").rglob("*"))
    dice.tl.denoise_to_zarr("query.h5ad", "prior.h5ad", "out.zarr")
    assert sorted(file.name for file in Path("out.zarr.partial").rglob("*")) == before


def test_calls_keep_their_inputs(inputs):
    query = ad.read_h5ad("query.h5ad", backed="r")
    for call in (
        lambda: dice.tl.annotate(stored_priors.cells(60), "prior.h5ad", report="prior.h5ad"),
        lambda: dice.pl.report(query, "query.h5ad"),
        lambda: dice.pl.report(stored_priors.cells(60), "prior.h5ad", reference="prior.h5ad"),
        lambda: dice.tl.denoise_to_zarr("query.h5ad", "prior.h5ad", "query.h5ad/inner.zarr"),
    ):
        with pytest.raises(dice.DiceError, match="is an input of this call and would be lost"):
            call()
    query.file.close()


def test_a_prior_of_the_shelf_is_no_report(inputs, tmp_path, monkeypatch):
    """It is an input by its name, and was replaced by the page."""
    monkeypatch.setenv("DICE_CACHE", str(tmp_path / "cache"))
    path = dice.priors.save("prior.h5ad", "mine")
    with pytest.raises(dice.DiceError, match="is an input of this call and would be lost"):
        dice.tl.annotate(stored_priors.cells(60), "mine", report=path)
    with pytest.raises(dice.DiceError, match="is an input of this call and would be lost"):
        dice.pl.report(stored_priors.cells(60), path, reference="mine")


@pytest.mark.filterwarnings("ignore:The prior's genes sum to")
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_a_lazy_object_keeps_its_file(tmp_path, suffix):
    """Its expression was read from the file that the result replaced, also in a subset and in a layer."""
    path = tmp_path / f"query.{suffix}"
    getattr(stored_priors.cells(60), f"write_{suffix}")(path)
    lazy, other = dice.read_lazy(path), stored_priors.cells(20)
    other.layers["lazy"] = lazy[:20].X
    for each in (lazy, lazy[:20].copy(), other):
        for output in (path, path / "inner.html"):
            with pytest.raises(dice.DiceError, match="is an input of this call and would be lost"):
                dice.pl.report(each, output)
        with pytest.raises(dice.DiceError, match="is an input of this call and would be lost"):
            dice.tl.denoise_to_zarr(each, FIXTURE, path, overwrite=True)
    dice.tl.denoise_to_zarr(lazy, FIXTURE, tmp_path / "out.zarr")


def test_a_page_keeps_what_it_was_made_from(inputs):
    """A page was saved over the file that its cells were read from."""
    cells = stored_priors.cells(60)
    cells.obsm["X_dice"] = cells.X[:, :2].copy()
    cells.write_h5ad("cells.h5ad")
    before, backed = Path("cells.h5ad").read_bytes(), ad.read_h5ad("cells.h5ad", backed="r")
    page = dice.pl.explore(backed, "prior.h5ad", use_rep="X_dice")
    for name in ("cells.h5ad", "prior.h5ad"):
        with pytest.raises(dice.DiceError, match="is an input of this call and would be lost"):
            page.save(name)
    page.save("page.html")
    backed.file.close()
    with pytest.raises(dice.DiceError, match="is an input of this call and would be lost"):
        dice.pl.explore(dice.read_lazy("cells.h5ad"), use_rep="X_dice").save("cells.h5ad")
    assert Path("cells.h5ad").read_bytes() == before


def test_a_store_is_not_written_over_its_source(tmp_path):
    stored_priors.cells(60).write_zarr(tmp_path / "query.zarr")
    for output in (tmp_path / "query.zarr", tmp_path / "query.zarr" / "inner.zarr"):
        with pytest.raises(dice.DiceError, match="is an input of this call and would be lost"):
            dice.tl.denoise_to_zarr(tmp_path / "query.zarr", FIXTURE, output, overwrite=True)


def test_an_input_is_replaced_if_the_user_says_so(tmp_path, capsys):
    counts = np.random.default_rng(0).poisson(2.0, size=(20, 30)).astype(np.float32)
    ad.AnnData(counts).write_h5ad(tmp_path / "cells.h5ad")
    arguments = ["prepare", tmp_path / "cells.h5ad", "-o", tmp_path / "cells.h5ad", "--min-genes", 1, "--quiet"]
    assert main([*map(str, arguments), "--overwrite-input"]) == 0
    assert "counts" in ad.read_h5ad(tmp_path / "cells.h5ad").layers
