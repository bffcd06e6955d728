"""What docs/architecture.md claims: who touches slots, what verbs look like, sizes, and the walk of a cell."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest
import size
import walk

import dice

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dice"
FILES = sorted(SOURCE.rglob("*.py"))
SLOTS = {"obs", "obsm", "obsp", "uns", "varm", "varp", "layers"}
#: Who may look into an AnnData object: the layer that knows slots, the calls into scanpy, who makes objects, and who
#: calls the package as a user does.
KNOW_SLOTS = {"_data", "datasets", "cli"}
MAX_PARAMETERS, MAX_FILE, MAX_FUNCTION = 15, 250, 60
#: Files and lines of code of the package, and modules and changes of layer of a call. These numbers only go down; the
#: goals are 150 files, 12,000 lines, and 14/8, 26/18, 30/22 and 55/50 for denoise, transfer_labels, train_prior and
#: annotate.
MAX_FILES, MAX_LINES = 135, 11_974
WALKS = {
    "denoise": (21, 12),
    "transfer_labels": (37, 34),
    "train_prior": (43, 51),
    "cluster": (28, 27),
    "annotate": (61, 106),
}


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


def defined(node: ast.stmt) -> list[str]:
    """Names of the class, or of the constants and types, that a statement of a module defines."""
    if isinstance(node, ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def test_one_name_is_one_thing():
    """No class, and no constant or type, is defined in two modules under one name (Prior is its own subclass)."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            for name in defined(node):
                # Variables of types have no meaning beyond their module.
                if not name.startswith("__") and name not in {"T", "P", "R", "F"}:
                    places.setdefault(name, []).append(name_of(path))
    twice = {name: where for name, where in places.items() if len(where) > 1 and name != "Prior"}
    assert not twice


@pytest.fixture(scope="module")
def pair():
    return walk.counted_pair()


@pytest.mark.parametrize("verb", WALKS)
def test_a_cell_passes_few_modules(verb, pair):
    """docs/architecture.md draws the walk of denoise; ``python tests/walk.py VERB`` prints any."""
    visits = walk.visits_of(verb, *pair)
    found, (n_modules, n_changes) = walk.modules(visits), WALKS[verb]
    assert len(found) <= n_modules, found
    assert walk.changes_of_layer(visits) <= n_changes


def test_the_package_does_not_grow():
    """``python tests/size.py`` prints the sizes by folder."""
    found = size.sizes()
    assert len(found) <= MAX_FILES
    assert sum(found.values()) <= MAX_LINES


def test_lines_of_code_are_counted():
    text = (
        '"""Module."""\n\n# comment\nx = """text\n"""\n\n\ndef f():\n    """Doc."""\n    return (\n        1\n    )\n'
    )
    assert size.lines_of_code(text) == 5


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
