"""The tutorials as they are stored: executed, small, and made of public names. `make tutorials` runs them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "tutorials"
PATHS = sorted(FOLDER.glob("*.ipynb"))
MAX_BYTES = 300_000
#: Folders of a machine, which a notebook must not show.
MACHINE = re.compile(r"(/home/|/Users/|/tmp/|/root/|/work/|/opt/|site-packages|[A-Z]:\\\\)")


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_eight():
    assert [path.stem[0] for path in PATHS] == list("12345678")


def test_is_valid_and_small(path, notebook):
    nbformat.validate(notebook)
    assert path.stat().st_size < MAX_BYTES


def test_was_executed_from_top_to_bottom(notebook):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_holds_no_errors_and_no_warnings(notebook):
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert outputs
    assert all(output.output_type != "error" and output.get("name") != "stderr" for output in outputs)


def test_shows_no_folder_of_a_machine(path):
    text = re.sub(r'"image/png": "[^"]*"', "", path.read_text())
    assert MACHINE.search(text) is None


def test_begins_with_a_title_and_ends_with_words(notebook):
    assert notebook.cells[0].source.startswith("# ")
    assert notebook.cells[-1].cell_type == "markdown"
    assert sum(cell.source.startswith("# ") for cell in notebook.cells if cell.cell_type == "markdown") == 1


def test_uses_public_names_only(notebook):
    tree = ast.parse("\n".join(cell.source for cell in code_cells(notebook)))
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    attributes = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    private = re.compile(r"(^|\.)_(?!_)")
    assert "dice" in imported
    assert not [name for name in imported + attributes if private.search(name)]
