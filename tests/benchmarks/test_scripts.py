"""All scripts of benchmarks/: each starts as its make target starts it, and comes to its table, on simulated cells."""

from __future__ import annotations

import importlib.machinery
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
#: What every target is asked for, so that it takes seconds, and the tables that it has to come to.
TARGETS = {
    "bench-citeseq": ("ARGS=--seeds 1 --methods PCA MAGIC DICE --steps 5 --stand-in {folder}", ["citeseq"]),
    "bench-clusters": (
        "ARGS=--seeds 1 --null-seeds 1 --nulls shuffled --whole bmmc --data bmmc 'cells -> nuclei'|"
        "PEERS=--seeds 1 --data bmmc --methods PCA Harmony",
        ["clusters", "clusters_others", "clusters_whole", "clusters_null", "clusters_peers"],
    ),
    "bench-denoising": ("ARGS=--seeds 1 --data bmmc", ["denoising"]),
    "bench-depth": ("ARGS=--seeds 1 --data bmmc", ["depth"]),
    "bench-features": ("ARGS=--seeds 1 --pairs bmmc", ["features"]),
    "bench-labels": ("ARGS=--seeds 1", ["transfer", "coverage", "novelty", "rho"]),
    "bench-levels": ("ARGS=--seeds 1 --data '3pv1 -> 3pv2'", ["levels"]),
    "bench-load": ("ARGS=--query 300 --reference 300 --steps 5", ["load"]),
    "bench-neocortex": ("ARGS=--seeds 1 --methods PCA DICE --steps 5 --stand-in {folder}", ["neocortex"]),
    "bench-panels": ("ARGS=--seeds 1", ["panels"]),
    "bench-paper": ("ARGS=--minutes 0.02 --network paper-small", ["paper_settings"]),
    "bench-real": ("ARGS=--seeds 1 --data bmmc --methods PCA MAGIC Harmony DICE 'DICE graph'", ["real"]),
    "bench-scale": ("ARGS=--largest 500 --reference 500 --without-cluster", ["scale_reference", "scale_query"]),
    "bench-shift": ("ARGS=--seeds 1 --pairs '3pv1 -> 3pv2'", ["shift"]),
    "bench-speed": (
        "ARGS=--only cells --max-cells 1000|PEERS=--repeats 1 --cells 200 --tools DICE MAGIC",
        ["speed_cells", "speed_peers"],
    ),
    "bench-synthetic": ("ARGS=--seeds 1 --literal 0", ["synthetic", "mismatch", "ablation_k"]),
    "bench-unseen": ("ARGS=--seeds 1", ["unseen"]),
}


def test_every_target_is_tried() -> None:
    named = re.findall(r"^(bench-[a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert sorted(named) == sorted(TARGETS)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.trial
@pytest.mark.parametrize("target", TARGETS)
def test_target_comes_to_its_table(target, tmp_path) -> None:
    given, tables = TARGETS[target]
    variables = given.format(folder=tmp_path).split("|")
    # Without DEV and BENCH there is nothing to install first. Functions that run once need not be compiled well.
    command = ["make", "-s", target, f"BIN={Path(sys.executable).parent}", "DEV=", "BENCH=", *variables]
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"DICE_TRIAL": str(tmp_path), "NUMBA_OPT": "0", "PYTHONPATH": paths}
    # A make that runs these tests hands its own variables down: ARGS would be those of the tests.
    inherited = {key: value for key, value in os.environ.items() if key not in {"MAKEFLAGS", "MAKEOVERRIDES", "ARGS"}}
    done = subprocess.run(command, cwd=ROOT, env=inherited | settings, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-500:]}\n{done.stderr[-1500:]}"
    for table in tables:
        assert len((tmp_path / f"{table}.csv").read_text().splitlines()) > 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_needs_nothing_but_the_development_tools(script, name) -> None:
    assert script(name).__doc__


@pytest.mark.parametrize("name", SCRIPTS)
def test_hides_no_package(name) -> None:
    # The folder of a script comes first in its path: a script named coverage.py is what numba would import.
    elsewhere = [
        path for path in sys.path if path and Path(path).resolve() not in (ROOT, ROOT / "benchmarks", ROOT / "tests")
    ]
    assert name not in sys.stdlib_module_names
    assert importlib.machinery.PathFinder.find_spec(name, elsewhere) is None


def test_says_which_method_is_not_installed(script, monkeypatch, capsys) -> None:
    peers = script("peers")
    monkeypatch.setitem(peers.PACKAGES, "MAGIC", "a_package_that_nobody_has")
    assert peers.installed(["PCA", "MAGIC", "NMF"]) == ["PCA", "NMF"]
    assert "MAGIC is left out: the Python package a_package_that_nobody_has" in capsys.readouterr().out


def test_the_page_of_figures_shows_what_is_drawn(script) -> None:
    shown = re.findall(r"_static/figures/(\w+)\.png", (ROOT / "docs" / "figures.md").read_text())
    assert sorted(shown) == sorted(script("figures").FIGURES)


def test_figures_ask_for_cells_that_exist(script, monkeypatch, tmp_path) -> None:
    figures, data = script("figures"), script("data")
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    with pytest.raises(data.Missing, match="pbmc_teaseq"):
        figures.teaseq()
