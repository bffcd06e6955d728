"""All scripts of benchmarks/, as far as they go without data and other tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_needs_nothing_but_the_development_tools(script, name) -> None:
    assert script(name).__doc__


def test_the_page_of_figures_shows_what_is_drawn(script) -> None:
    shown = re.findall(r"_static/figures/(\w+)\.png", (ROOT / "docs" / "figures.md").read_text())
    assert sorted(shown) == sorted(script("figures").FIGURES)


def test_figures_ask_for_cells_that_exist(script, monkeypatch, tmp_path) -> None:
    figures, data = script("figures"), script("data")
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    with pytest.raises(data.Missing, match="pbmc_teaseq"):
        figures.teaseq()
