"""README as a newcomer takes it: every code block runs as printed, and what it promises is there."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def blocks(language):
    return [code for name, code in BLOCKS if name == language]


def test_python_blocks_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert blocks("python")
    names: dict[str, object] = {"__name__": "readme"}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)
    plt.close("all")
    printed = capsys.readouterr().out
    assert "X_dice_pca" in printed
    for file in re.findall(r'save="([^"]+)"', "".join(blocks("python"))):
        assert (tmp_path / file).stat().st_size > 1000


def test_make_targets_exist():
    named = re.findall(r"make ([a-z-]+)", "\n".join(blocks("bash")) + "\n" + " ".join(re.findall(r"`([^`]+)`", TEXT)))
    assert {"demo", "test"} <= set(named)
    assert set(named) <= TARGETS


@pytest.mark.parametrize("command", re.findall(r"^\s*(.+?)\s*(?:#.*)?$", "\n".join(blocks("bash")), re.MULTILINE))
def test_shell_commands_are_known_ones(command):
    """Installing and cloning need the network, so that their form is all that can be checked."""
    assert re.fullmatch(r"make [a-z-]+|pip install ('scdice\[[a-z]+\]'|scdice)|git clone \S+|cd \S+", command)


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
