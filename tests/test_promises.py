"""The pages on reliability and security promise only what a test holds: every promise names it, and it exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / name for name in ("reliability.md", "security.md")]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def promises(page: Path) -> list[str]:
    """Items of lists, rows of tables and paragraphs that begin with a bold word, under headings that promise."""
    found = []
    for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        if title in ("What is not held", "What was found"):
            continue
        blocks = re.split(r"\n\n|\n(?=- )", text)
        found += [block for block in blocks if block.strip().startswith(("- ", "**"))]
        found += [row for row in re.findall(r"^\| .*", text, flags=re.MULTILINE) if row != "| what | by |"]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_tests_exist(page):
    named = NAMED.findall(page.read_text())
    assert len(named) > 10
    for file, name in named:
        assert (ROOT / file).exists(), file
        tree = ast.parse((ROOT / file).read_text())
        tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not name or name in tests, f"{page.name} names {file}::{name}, which does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_promise_names_its_test(page):
    found = promises(page)
    assert len(found) > 5
    for promise in found:
        assert NAMED.search(promise), promise
