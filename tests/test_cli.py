"""The command line, and the demonstration as a newcomer runs it."""

from __future__ import annotations

import subprocess
import sys

import anndata as ad
import pandas as pd
import pytest

import dice
from dice import _demo
from dice.cli import main


def test_demo_writes_what_it_says(tmp_path, capsys):
    assert main(["demo", "--output", str(tmp_path / "demo")]) == 0
    printed = capsys.readouterr().out
    for word in ("PCA", "DICE", "silhouette", "ari", "nmi", "clisi", "label_accuracy", "seconds", "umap.png"):
        assert word in printed
    query = ad.read_h5ad(tmp_path / "demo" / "query.h5ad")
    assert {"X_dice", "X_dice_pca", "X_dice_labels"} <= set(query.obsm)
    assert (tmp_path / "demo" / "umap.png").read_bytes().startswith(b"\x89PNG")


def test_hold_out_divides_the_cells():
    cells = dice.datasets.pbmc68k()
    reference, query = _demo.hold_out(cells, 0)
    assert reference.n_obs + query.n_obs == cells.n_obs
    assert not set(reference.obs_names) & set(query.obs_names)


def test_help_and_version():
    for arguments in (["--help"], ["demo", "--help"], ["--version"]):
        run = subprocess.run([sys.executable, "-m", "dice", *arguments], capture_output=True, text=True, check=True)
        assert "dice" in run.stdout


def test_errors_are_one_sentence(monkeypatch, capsys):
    def fail(*args, **kwargs) -> pd.DataFrame:
        raise dice.DiceError("Something is wrong: do this instead.")

    monkeypatch.setattr(_demo, "run", fail)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "dice: Something is wrong: do this instead.\n"
    with pytest.raises(dice.DiceError):
        main(["--debug", "demo"])
