"""The shelf of priors: names in place of references, downloads from a server on this machine, and files to refuse."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pytest
import stored_priors

import dice
from dice import cli, priors
from dice._data.gene_names import names_of
from dice._errors import FileError

#: What a row of the table says beside the checksum.
ROW = dict.fromkeys(priors.SHELF_COLUMNS, "") | {"tissue": "none", "species": "human", "cells": 300, "size": 0.1}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """An empty shelf, and a server with one ready prior, ``toy``."""
    monkeypatch.setenv("DICE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "server").mkdir()
    served = tmp_path / "server" / "toy.h5ad"
    priors.described_prior(stored_priors.path("labels"), "toy", {"tissue": "none"}).save(served)
    row = ROW | {"sha256": hashlib.sha256(served.read_bytes()).hexdigest()}
    monkeypatch.setattr(priors, "_ready", lambda: {"toy": row})

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path / "server")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with dice.settings.using(priors_url=f"http://127.0.0.1:{server.server_address[1]}/"):
        yield tmp_path / "cache" / "priors"
    server.shutdown()
    server.server_close()


def test_a_ready_prior_is_downloaded_once(shelf):
    assert not dice.priors.list().loc["toy", "here"]
    prior = dice.priors.load("toy")
    assert (shelf / "toy.h5ad").exists()
    assert dice.priors.list().loc["toy", "here"]
    with dice.settings.using(priors_url="http://127.0.0.1:9"):
        assert dice.priors.load("toy").sha256 == prior.sha256


def test_a_name_stands_for_a_reference(shelf):
    query = stored_priors.cells(120)
    by_name = dice.tl.transfer_labels(query, "toy", copy=True)
    by_prior = dice.tl.transfer_labels(query, dice.priors.load("toy"), copy=True)
    assert by_name.obs["label_dice"].tolist() == by_prior.obs["label_dice"].tolist()
    dice.tl.denoise(query, "toy")
    assert query.obsm["X_dice"].shape == (120, 3)


def test_names_on_the_command_line(shelf, tmp_path, capsys):
    stored_priors.cells(120).write_h5ad(tmp_path / "q.h5ad")
    assert cli.main(["annotate", str(tmp_path / "q.h5ad"), "toy", "-o", str(tmp_path / "out.h5ad"), "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "label" in said
    # The prior was learned with counts, and its cells are not here: the summary said that there are none.
    assert "of the reference unknown" not in said
    assert cli.main(["info"]) == 0
    assert "toy" in capsys.readouterr().out
    for prior in ("toy", str(shelf / "toy.h5ad")):
        assert cli.main(["info", prior]) == 0
        said = capsys.readouterr().out
        assert said.startswith("Prior('default', 20 genes")
        assert "tissue     none" in said
        assert "beta/gamma" in said
    assert cli.main(["info", "tyo"]) == 1
    assert "There is no file and no prior 'tyo': pass a path or one of ['toy']" in capsys.readouterr().err
    trained = ["--trained", str(tmp_path / "t.h5ad"), "--quiet"]
    assert cli.main(["annotate", str(tmp_path / "q.h5ad"), "toy", "-o", str(tmp_path / "out.h5ad"), *trained]) == 1
    assert "leave --trained out" in capsys.readouterr().err


def test_ones_own_shelf(shelf):
    path = dice.priors.save(stored_priors.path("labels"), "my_lab", tissue="lung", licence="CC0")
    assert path == shelf / "my_lab.h5ad"
    assert dice.priors.load("my_lab").labels.names == ["alpha", "beta/gamma", "δ"]
    row = dice.priors.list().loc["my_lab"]
    assert (row["tissue"], row["licence"], row["cells"], row["labels"], row["here"]) == ("lung", "CC0", 300, 3, True)
    with pytest.raises(dice.DiceError, match="must not be the name of a ready prior, got 'toy'"):
        dice.priors.save(stored_priors.path("labels"), "toy")
    with pytest.raises(dice.DiceError, match=r"description must hold one-line texts for .*, got colour='red'"):
        dice.priors.save(stored_priors.path("labels"), "my_lab", colour="red")
    # A null character made a file that could not be read again, in place of the one before.
    for text in ("a\0b", "a\nb", "\x1b[31m", "x" * 1000):
        with pytest.raises(dice.DiceError, match="must hold one-line texts"):
            dice.priors.save(stored_priors.path("labels"), "my_lab", tissue=text)
    for name in ("My Lab", "../up", "a/b", "", ".h5ad", 3, ["my_lab"]):
        with pytest.raises(dice.DiceError, match="`name` must be 1 to 64 lower-case letters"):
            dice.priors.save(stored_priors.path("labels"), name)


def test_the_same_recipe_gives_the_same_file(tmp_path):
    """A card with its date changed the checksum of a recipe every day."""
    for place in ("a", "b"):
        reference = stored_priors.cells()
        dice.tl.train_prior(reference, labels_key="label", n_latent=3, training=dice.Training(max_steps=20))
        priors.described_prior(reference, "toy", {"tissue": "none"}).save(tmp_path / place)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert "date" not in dice.Prior.load(tmp_path / "a").labels.card


def test_a_recipe_is_built(tmp_path, monkeypatch):
    """No test ran the script, and `make priors` failed once a function that it calls returned something else."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "priors")
    before = set(sys.modules)
    build = importlib.import_module("build")
    rng, types = np.random.default_rng(0), np.arange(400) % 2
    profiles = rng.gamma(0.5, 4.0, size=(2, 60))
    cells = ad.AnnData(rng.poisson(profiles[types]).astype(np.float32), obs={build.KEY: np.array(["T", "B"])[types]})
    cells.obs[build.KEY] = cells.obs[build.KEY].astype("category")
    cells.var_names = [*list(names_of("human").orthologs)[:50], *(f"probe{i}" for i in range(10))]
    train = functools.partial(dice.tl.train_prior, training=dice.Training(max_steps=20, calibration_fraction=0.3))
    monkeypatch.setattr(build, "labelled_cells", lambda recipe: cells)
    monkeypatch.setattr(build, "HERE", tmp_path)
    monkeypatch.setattr(dice.tl, "train_prior", train)
    (tmp_path / "built").mkdir()
    row = build.build("toy", {"card": {"tissue": "blood", "species": "human"}})
    assert hashlib.sha256((tmp_path / "built" / "toy.h5ad").read_bytes()).hexdigest() == row["sha256"]
    assert (row["tissue"], row["cells"], row["labels"]) == ("blood", 360, 2)
    genes = dice.Prior.load(tmp_path / "built" / "toy.h5ad").genes
    assert not [gene for gene in genes if gene.startswith("probe")]
    for name in set(sys.modules) - before:
        if name in ("build", "cells", "unseen_sets"):
            del sys.modules[name]


def forged(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["uns/dice/noise"][()] = 0.5


def outdated(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["uns/dice/format"][()] = 3


def renamed(path: Path) -> None:
    dice.priors.save(stored_priors.path("labels"), "other").replace(path)


def nameless(path: Path) -> None:
    shutil.copy(stored_priors.path("labels"), path)


def pickled(path: Path) -> None:
    path.write_bytes(b"\x80\x04\x95cos\nsystem\n.")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (forged, "does not match its checksum"),
        (outdated, "has format 3, but this version of dice reads"),
        (renamed, "holds the prior 'other': rename the file"),
        (nameless, "holds no named prior"),
        (pickled, "cannot be read as .h5ad or .zarr"),
    ],
)
def test_files_that_are_refused(shelf, spoil, sentence):
    """A user's own are refused by what is in them, ready ones by their checksum before they are opened."""
    dice.priors.save(stored_priors.path("labels"), "mine")
    dice.priors.load("toy")
    for name, expected in (("mine", sentence), ("toy", "is not the prior 'toy' of this version")):
        spoil(shelf / f"{name}.h5ad")
        with pytest.raises(dice.DiceError, match=expected) as caught:
            dice.priors.load(name)
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
    with pytest.warns(dice.DiceWarning, match="skipped") if spoil is not renamed else pytest.warns(dice.DiceWarning):
        assert "mine" not in dice.priors.list().index


def test_forged_names_and_descriptions(shelf):
    """A name that cannot be saved stopped the whole list, and a card could send codes to the terminal."""
    prior = dice.Prior.load(stored_priors.path("labels"))
    for name, stored in (("BAD NAME", "BAD NAME"), ("codes", "codes")):
        told = {"name": stored, "tissue": "\x1b[2Jlung", "species": ["human"], "licence": "CC0"}
        shelf.mkdir(parents=True, exist_ok=True)
        replace(prior, params={**prior.params, "shelf": told}).save(shelf / f"{name}.h5ad")
    with pytest.warns(dice.DiceWarning, match="was skipped.*got 'BAD NAME'"):
        table = dice.priors.list()
    assert list(table.index) == ["codes", "toy"]
    assert list(table.loc["codes", ["tissue", "species", "licence"]]) == ["", "", "CC0"]


def test_what_a_server_may_do(shelf, tmp_path):
    """No connection, no such file, and another file: one sentence each that says where to put the file."""
    where = rf"put its file at '{shelf / 'toy.h5ad'}' by hand, or set dice.settings.priors_url"
    with dice.settings.using(priors_url="http://127.0.0.1:9"), pytest.raises(FileError, match=where):
        dice.priors.load("toy")
    (tmp_path / "server" / "toy.h5ad").write_bytes(b"forged")
    with pytest.raises(FileError, match=f"hash.*{where}"):
        dice.priors.load("toy")
    (tmp_path / "server" / "toy.h5ad").unlink()
    with pytest.raises(FileError, match=f"404.*{where}"):
        dice.priors.load("toy")
    assert not list(shelf.glob("*"))


TWICE = """
import sys
from dice import priors
row = {"sha256": sys.argv[1]}
priors._ready = lambda: {"toy": row}
print(priors.load("toy").sha256)
"""


def test_two_processes_end_with_one_whole_file(shelf):
    call = [sys.executable, "-c", TWICE, priors._ready()["toy"]["sha256"]]
    asked = {"env": os.environ | {"DICE_PRIORS_URL": dice.settings.priors_url}, "text": True}
    both = [subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **asked) for _ in range(2)]
    said = [process.communicate()[0].strip() for process in both]
    assert said == [dice.priors.load("toy").sha256] * 2
    assert [path.name for path in shelf.iterdir()] == ["toy.h5ad"]


def test_the_table_of_the_package():
    """Every recipe has its row, and every row its recipe and its figures."""
    recipes = {path.stem for path in (Path(__file__).parents[1] / "priors").glob("*.toml")}
    rows = priors._ready.__wrapped__()
    assert rows.keys() == recipes
    assert len(rows) >= 6
    for row in rows.values():
        assert len(row["sha256"]) == 64
        assert row["labels"] >= 2
        assert 0.5 < row["accuracy"] <= 1
        assert row["species"] in ("human", "mouse")
        assert all(row[name] for name in priors.DESCRIBED)
        assert np.isfinite(row["size"])


def test_the_page_of_the_shelf():
    """The page lists every ready prior with the figures of the table."""
    page = (Path(__file__).parents[1] / "docs" / "priors.md").read_text()
    listed = {
        cells[1].strip("`"): cells[5:8]
        for line in page.splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) == 11 and cells[1].startswith("`")
    }
    rows = priors._ready.__wrapped__()
    assert listed == {
        name: [f"{row['cells']:,}", str(row["labels"]), f"{row['accuracy']:.3f}"] for name, row in rows.items()
    }


def test_a_file_of_the_same_name_does_not_hide_a_prior(shelf, tmp_path, monkeypatch, capsys):
    """A bare name is looked for on the shelf first; a path is always a file."""
    monkeypatch.chdir(tmp_path)
    dice.priors.save(stored_priors.path("labels"), "mine")
    query = stored_priors.cells(60)
    query.write_h5ad("q.h5ad")
    for name in ("toy", "mine", "free"):
        Path(name).mkdir()
    for name in ("toy", "mine"):
        assert cli.main(["info", name]) == 0
        assert "beta/gamma" in capsys.readouterr().out
        assert cli.main(["transfer", "q.h5ad", name, "-o", "out.h5ad", "--quiet"]) == 0
        found = dice.tl.transfer_labels(query, name, copy=True)
        assert found.obs["label_dice"].tolist() == ad.read_h5ad("out.h5ad").obs["label_dice"].tolist()
        # The folder is another file than the prior, and is read where it is meant.
        for path in (f"./{name}", Path(name), "free"):
            with pytest.raises(dice.DiceError, match=r"cannot be read|has no prior|is no "):
                dice.tl.transfer_labels(query, path)
    capsys.readouterr()
    assert cli.main(["transfer", "q.h5ad", "./toy", "-o", "out.h5ad", "--quiet"]) == 1
    assert "toy" in capsys.readouterr().err
