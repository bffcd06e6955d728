"""The check that ends `make docs` finds what it is there for."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

check_site = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "check.py"))["main"]
GOOD = '<a href="two.html#here">two</a><a href="https://example.org">elsewhere</a><link rel="canonical" href="https://x.y/">'


@pytest.fixture
def site(tmp_path):
    (tmp_path / "one.html").write_text(GOOD)
    (tmp_path / "two.html").write_text('<h1 id="here">Two</h1><a href="one.html">one</a><img src="one.html">')
    return tmp_path


def test_a_whole_site_passes(site, capsys):
    assert check_site(site) == 0
    assert "2 pages" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<a href="three.html">x</a>', "links to three.html, which does not exist"),
        ('<a href="two.html#there">x</a>', "links to two.html#there, which has no such anchor"),
        ('<a href="#nowhere">x</a>', "links to #nowhere, which has no such anchor"),
        ('<script src="https://cdn.example.org/a.js"></script>', "loads https://cdn.example.org/a.js"),
        ('<link rel="stylesheet" href="//fonts.example.org/a.css">', "loads //fonts.example.org/a.css"),
        ('<img src="missing.png">', "links to missing.png, which does not exist"),
    ],
)
def test_each_problem_is_named(site, page, problem, capsys):
    (site / "one.html").write_text(page)
    assert check_site(site) == 1
    assert problem in capsys.readouterr().out


def test_an_api_page_without_a_signature_is_a_problem(site, capsys):
    (site / "generated").mkdir()
    (site / "generated" / "dice.tl.denoise.html").write_text("<h1>dice.tl.denoise</h1>")
    assert check_site(site) == 1
    assert "documents nothing" in capsys.readouterr().out
