"""What docs/architecture.md claims: who touches slots, what verbs look like, sizes, and the walk of a cell."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest
import walk

import dice

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dice"
FILES = sorted(SOURCE.rglob("*.py"))
SLOTS = {"obs", "obsm", "obsp", "uns", "varm", "varp", "layers"}
#: Who may look into an AnnData object: the layer that knows slots, the calls into scanpy, who makes objects, and who
#: calls the package as a user does.
KNOW_SLOTS = {"_data", "datasets", "cli", "_demo.py"}
MAX_PARAMETERS, MAX_FILE, MAX_FUNCTION = 15, 250, 60


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def functions(tree: ast.AST):
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines beside the docstring."""
    docstring = ast.get_docstring(node, clean=False)
    return node.end_lineno - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)


@pytest.mark.parametrize("layer", ["pp", "tl", "pl"])
def test_a_file_is_a_public_verb(layer):
    verbs = {name for name in getattr(dice, layer).__all__ if name.islower()}
    assert {path.stem.removeprefix("_") for path in (SOURCE / layer).glob("*.py")} - {"_init__"} == verbs
    assert all(path.suffix == ".py" for path in (SOURCE / layer).iterdir() if path.name != "__pycache__")


@pytest.mark.parametrize("layer", ["pp", "tl", "pl"])
def test_a_verb_has_few_parameters(layer):
    module = getattr(dice, layer)
    for verb in (getattr(module, name) for name in module.__all__ if name.islower()):
        assert len(inspect.signature(verb).parameters) <= MAX_PARAMETERS, verb.__name__


def test_one_layer_knows_slots():
    touched = Counter()
    for path in FILES:
        layer = name_of(path).split("/")[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute) or node.attr not in SLOTS or layer in KNOW_SLOTS:
                continue
            # `keys.uns` is the name of a slot, and `self.layers` are those of a network.
            if not re.match(r"self|keys|\w+Keys\(", ast.unparse(node.value)):
                touched[name_of(path)] += 1
    assert not touched, touched


def test_files_and_functions_fit_on_a_screen():
    long_files = {name_of(path): n for path in FILES if (n := len(path.read_text().splitlines())) > MAX_FILE}
    assert not long_files
    long_functions = {
        f"{name_of(path)}:{node.name}": length(node)
        for path in FILES
        for node in functions(ast.parse(path.read_text()))
        if length(node) > MAX_FUNCTION
    }
    assert not long_functions


def test_one_name_is_one_thing():
    """No class, and no constant or type, is defined in two modules under one name (Prior is its own subclass)."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            for name in names:
                if not name.startswith("_"):
                    places.setdefault(name, []).append(name_of(path))
    twice = {name: where for name, where in places.items() if len(where) > 1 and name != "Prior"}
    assert not twice


def test_a_cell_passes_few_modules():
    """docs/architecture.md draws this walk; ``python tests/walk.py`` prints it."""
    reference, query = walk.counted_pair()
    visits = walk.walk(lambda: dice.tl.denoise(query, reference))
    assert len(walk.modules(visits)) <= 23, walk.modules(visits)
    assert walk.changes_of_layer(visits) <= 15


def test_the_tree_is_drawn_as_it_is():
    """Every module of the package is named on the page."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    tree = page.split("```text")[2].split("```")[0]
    missing = [
        name_of(path)
        for path in FILES
        if path.name not in tree and path.name != "__init__.py" and path.parent.name not in {"tl", "pp", "pl"}
    ]
    assert not missing
