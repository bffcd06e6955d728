"""The script of `make mutants`: its changes, its sample, and the list of mutants that are none."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from typing import Any, ClassVar

import mutants
import numpy as np
import pytest
import visits

import dice._labels
from dice._labels import sets


@pytest.fixture(scope="module")
def everything():
    paths = (path for layer in mutants.LAYERS for path in sorted((mutants.SOURCE / layer).rglob("*.py")))
    return [mutant for path in paths for mutant in mutants.mutants_of(path)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", {"a <= b"}),
        ("a is None", {"a is not None"}),
        ("a + b", {"a - b"}),
        ("a and b", {"a or b"}),
        ("not a", {"a"}),
        ("f(0.5)", {"f(1.0)"}),
        ("f(0.0)", {"f(1.0)"}),
        ("f(2)", {"f(3)"}),
        ("f(8)", {"f(9)", "f(16)"}),
        ("np.maximum(a, 0.5)", {"a", "np.maximum(a, 1.0)"}),
        ("x.clamp_min(b)", {"x"}),
        ("if a:\n    return b", {"if False:\n    return b"}),
        ("check_it(a)", {"pass"}),
        ("a.sum(1)", set()),
        ("f(a, axis=1)", set()),
        ("a.shape[1]", set()),
        ("'a' + b", set()),
        ("f(True, 'x', None)", set()),
        ("f(1e-9)", set()),
        ("CHUNK = 8", set()),
        ("_log.warn(a + b)", set()),
        ("x = f'{a + b}'", set()),
        ("if a < b:\n    raise E(a + b)", {"if a <= b:\n    raise E(a + b)", "if False:\n    raise E(a + b)"}),
    ],
)
def test_changes(before, after):
    found = set()
    for place, (*_, node, _) in enumerate(mutants.places(ast.parse(before))):
        for kind, _ in mutants.changes(node):
            tree = ast.parse(before)
            parent, name, index, old, _ = next(p for i, p in enumerate(mutants.places(tree)) if i == place)
            new = next(new for k, new in mutants.changes(old) if k == kind)
            if index is None:
                setattr(parent, name, new)
            else:
                getattr(parent, name)[index] = new
            found.add(ast.unparse(ast.fix_missing_locations(tree)))
    assert found == after


def test_a_seed_gives_one_sample_and_every_kind_has_its_share():
    one, again, other = (mutants.sample(mutants.SIZE, seed) for seed in (1, 1, 2))
    assert one == again
    assert len({mutant.identity for mutant in one}) == mutants.SIZE
    assert len(set(one) & set(other)) < mutants.SIZE / 5
    shares = Counter(mutant.kind for mutant in one)
    assert set(shares) == {"arithmetic", "boolean", "clamp", "comparison", "constant", "guard", "off by one"}
    assert max(shares.values()) - min(shares.values()) <= 1


class Measured(visits.Visits):
    """Four tests: three run a guard, of which the widest is behind it, and one runs something else."""

    stored: ClassVar[dict[str, Any]] = {
        "tests": ["slow", "quick", "wide", "other"],
        "seconds": [mutants.BUDGET, 2.0, 3.0, 1.0],
        "lines": {
            "f": {"if a < LIMIT:": [0, 1, 2], "return a": [2], "return b": [0, 1, 2], "c": [0, 2]},
            "g": {"d": [3]},
        },
    }


def test_the_tests_of_a_line_come_in_their_order_and_within_their_time():
    guard = mutants.Mutant("m.py", "f", "guard", "if a < LIMIT:", "dropped", 1, 0, 1, "return a")
    assert mutants.tests_of(guard, Measured()) == ("wide", "quick")
    line = mutants.Mutant("m.py", "f", "constant", "c", "1 -> 2", 1, 0, 1)
    assert mutants.tests_of(line, Measured()) == ("slow",)


def test_lines_that_run_on_import_are_found_by_their_function_or_their_name():
    found = Measured()
    assert found.running("f", "def f(a: int = 2) -> int:") == {0, 1, 2}
    assert found.running("<module>", "LIMIT = 7") == {0, 1, 2}
    assert not found.running("<module>", "OTHER = 7")


def test_which_tests_run_a_line_is_measured(tmp_path, monkeypatch):
    """A helper that keeps its result counts for both tests that use it, though only the first one runs it."""
    (tmp_path / "test_it.py").write_text(
        "from functools import cache\nfrom dice._labels.sets import too_few\nimport numpy as np\n"
        "@cache\ndef helped():\n    return too_few(np.zeros(9, dtype=int), 1, 0.1)\n"
        "def test_one():\n    assert not helped().any()\ndef test_two():\n    helped()\ndef test_three():\n    pass\n"
    )
    found = subprocess.run(
        [sys.executable, visits.__file__, str(tmp_path / "visits.json"), str(tmp_path / "test_it.py")],
        capture_output=True, text=True, check=False, cwd=mutants.ROOT,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    stored = json.loads((tmp_path / "visits.json").read_text())
    names = [test.rpartition("::")[2] for test in stored["tests"]]
    tests = {names[number] for numbers in stored["lines"]["too_few"].values() for number in numbers}
    assert names == ["test_one", "test_two", "test_three"]
    assert tests == {"test_one", "test_two"}


def test_equivalent_mutants_exist_and_have_a_reason(everything):
    known = {mutant.identity for mutant in everything}
    for identity, reason in mutants.read_equivalent().items():
        assert identity in known, f"{identity} is in the list of equivalent mutants, but no longer in the code"
        assert len(reason) > 20


def test_a_changed_module_is_loaded_in_place_of_its_file(everything):
    """The bound of alpha at nine cells, which nothing tested once."""
    (mutant,) = (m for m in everything if m.function == "too_few" and m.kind == "comparison")
    name = "dice._labels.sets"
    spec = mutants.Finder(mutant).find_spec(name, dice._labels.__path__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    nine = np.zeros(9, dtype=int)
    assert module.too_few(nine, 1, 0.1).all()
    assert not sets.too_few(nine, 1, 0.1).any()
    assert mutants.Finder(mutant).find_spec("dice._labels.summary") is None


@pytest.mark.parametrize(("code", "word"), [(0, "passed"), (1, "failed"), (2, "failed"), (-9, "died")])
def test_what_a_run_tells(code, word, tmp_path):
    (tmp_path / "1.txt").write_text("ended")
    assert mutants.said(code, 1, str(tmp_path)) == word


@pytest.mark.parametrize("code", [3, 4, 5, mutants.BROKEN])
def test_a_run_without_tests_ends_all(code, tmp_path):
    (tmp_path / "1.txt").write_text("no tests ran")
    with pytest.raises(SystemExit, match="no tests ran"):
        mutants.said(code, 1, str(tmp_path))


def test_tests_that_cannot_be_imported_have_noticed(tmp_path):
    (tmp_path / "1.txt").write_text(
        "____ ERROR collecting tests/a.py ____\nERROR: found no collectors for tests/a.py::b"
    )
    assert mutants.said(4, 1, str(tmp_path)) == "failed"


def test_the_test_that_noticed_is_told(tmp_path):
    (tmp_path / "1.txt").write_text("F\n1 failed\nFAILED tests/a.py::b - AssertionError: c - d\n")
    assert mutants.noticed_by(1, str(tmp_path)) == "FAILED tests/a.py::b"


def test_another_dice_is_not_tried(monkeypatch):
    mutants.check_source()
    monkeypatch.setattr(mutants, "SOURCE", mutants.ROOT)
    with pytest.raises(SystemExit, match="The dice that is imported is"):
        mutants.check_source()


def test_those_that_died_were_not_noticed(everything, tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "TABLE", tmp_path / "table.csv")
    mutants.TABLE.write_text("seed,mutants,equivalent,noticed,survived,score\n1,2,0,1,1,50%\n7,9,0,9,0,100%\n")
    mutants.publish(7, dict(zip(everything, ["failed", "endless", "died", "passed", "equivalent"], strict=False)))
    assert mutants.TABLE.read_text().splitlines()[1:] == ["1,2,0,1,1,50%", "7,5,1,2,2,50%"]
