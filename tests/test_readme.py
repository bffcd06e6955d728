"""README as a newcomer takes it: every code block runs as printed, and what it promises is there."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import dice

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def blocks(language):
    return [code for name, code in BLOCKS if name == language]


def few_cells():
    """Raw counts of four types, in place of pancreas cells, which take minutes."""
    rng = np.random.default_rng(0)
    types = np.arange(600) % 4
    cells = ad.AnnData(rng.poisson(3 * rng.gamma(0.3, size=(4, 300))[types]).astype(np.float32))
    cells.obs["cell_type"] = pd.Categorical(np.array(["alpha", "beta", "delta", "gamma"])[types])
    return cells[:450].copy(), cells[450:].copy()


def test_python_blocks_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dice.datasets, "pancreas", few_cells)
    names: dict[str, object] = {"__name__": "readme"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for code in blocks("python"):
            exec(compile(code, "README.md", "exec"), names)
    plt.close("all")
    query = names["query"]
    assert (tmp_path / "report.html").stat().st_size > 10_000
    # Every slot that the text names is there.
    assert not [name for name in re.findall(r'obs\["([^"]+)"\]', TEXT) if name not in query.obs]
    assert not [name for name in re.findall(r'obsm\["([^"]+)"\]', TEXT) if name not in query.obsm]
    # Two screens at most, with the picture.
    assert len(TEXT.splitlines()) < 75


def test_make_targets_exist():
    named = re.findall(r"make ([a-z-]+)", "\n".join(blocks("bash")) + "\n" + " ".join(re.findall(r"`([^`]+)`", TEXT)))
    assert {"demo", "test"} <= set(named)
    assert set(named) <= TARGETS


@pytest.mark.parametrize("command", re.findall(r"^\s*(.+?)\s*(?:#.*)?$", "\n".join(blocks("bash")), re.MULTILINE))
def test_shell_commands_are_known_ones(command):
    assert re.fullmatch(r"make [a-z-]+", command)


def test_pictures_and_pages_exist():
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT)
    local = [link for link in links if "://" not in link]
    assert local
    assert not [link for link in local if not (ROOT / link).exists()]


def test_figures_of_the_comparison_are_those_of_the_benchmarks():
    """A number in a row that names its source stands in that source, digit by digit."""
    rows = re.findall(r"^(\|.*\]\((docs/benchmarks/[a-z_]+\.md)\).*\|)$", TEXT, flags=re.MULTILINE)
    assert rows
    for row, source in rows:
        measured = (ROOT / source).read_text()
        assert not [figure for figure in re.findall(r"\d\.\d{3}", row) if figure not in measured], row
