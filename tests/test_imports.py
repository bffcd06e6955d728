"""The architecture: imports go one way, and importing dice costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dice"
#: The layers from the ground up: each may import those before it, and none after it.
LAYERS = (
    ("_model",),
    ("_data",),
    ("_query",),
    ("_labels", "_clusters", "_features"),
    ("_train", "metrics", "_plot"),
    ("pp", "tl", "pl"),
    ("cli",),
)
#: Packages that the mathematics never sees.
FOREIGN = {"_model": {"anndata", "scanpy", "pandas", "tqdm", "dice._log"}}
#: Modules of slices that a stored prior and its readers need. They are pure: they import nothing above `_model`.
PURE = {
    "dice._labels.model",
    "dice._labels.novelty",
    "dice._labels.tree",
    "dice._labels.views",
    "dice._clusters.partition",
}
FORBIDDEN = {
    name: FOREIGN.get(name, set()) | {f"dice.{above}" for later in LAYERS[level + 1 :] for above in later}
    for level, layer in enumerate(LAYERS)
    for name in layer
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_imports_go_one_way(layer):
    files = list((SOURCE / layer).rglob("*.py"))
    assert files
    for path in files:
        for name in imported(path):
            if any(name == pure or name.startswith(pure + ".") for pure in PURE):
                continue
            for forbidden in FORBIDDEN[layer]:
                assert name != forbidden, f"{path.name} imports {name}"
                assert not name.startswith(forbidden + "."), f"{path.name} imports {name}"


@pytest.mark.parametrize("module", sorted(PURE))
def test_what_a_stored_prior_needs_is_pure(module):
    path = SOURCE.joinpath(*module.split(".")[1:]).with_suffix(".py")
    above = {f"dice.{name}" for layer in LAYERS[1:] for name in layer}
    for name in imported(path) - PURE:
        inside = any(name.startswith(pure + ".") for pure in PURE)
        assert inside or not any(name == layer or name.startswith(layer + ".") for layer in above), name


def test_plots_alone_import_what_plots_share():
    for path in SOURCE.rglob("*.py"):
        layer = path.relative_to(SOURCE).parts[0]
        if any(name.startswith("dice._plot") for name in imported(path)):
            assert layer in {"_plot", "pl"}, path


def test_no_private_imports_from_others():
    for path in SOURCE.rglob("*.py"):
        for name in imported(path):
            root, *rest = name.split(".")
            private = [part for part in rest if part.startswith("_") and not part.endswith("__")]
            assert root in {"dice", "__future__"} or not private, f"{path.name} imports {name}"


def test_import_is_light_and_fast():
    code = (
        "import sys, time; start = time.perf_counter(); import dice;"
        "print(time.perf_counter() - start, *{'torch', 'scanpy', 'anndata'} & set(sys.modules))"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    outputs = [run.stdout.split() for run in runs]
    assert all(len(output) == 1 for output in outputs), outputs
    assert min(float(output[0]) for output in outputs) < 0.5
