"""Which tests run a line of the package, and how long they take: measured once, for the mutants.

The tests run under coverage.py, each in a context of its own. What a fixture of a whole file, or a helper that keeps
its result, has run counts for every test that uses it. Lines are known by the name of their function and their text,
so that they are found again after code has moved. The measurement is kept in .pytest_cache.

    python tests/visits.py                       measure again
    python tests/visits.py FILE TEST [TEST ...]  measure these tests into a file
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, wraps
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dice"
STORED = ROOT / ".pytest_cache" / "visits.json"
#: What is measured: plots decide no results, and whole programs take long.
TESTS = (
    "clusters",
    "data",
    "features",
    "labels",
    "model",
    "pp",
    "query",
    "tl",
    "pl/test_colors.py",
    "pl/test_comparison.py",
)
TESTS += ("test_api_manners.py", "test_arguments.py", "test_errors.py", "test_hazards.py", "test_log.py")
TESTS += ("test_metrics.py", "test_pinned.py", "test_roundtrip.py")
#: Seconds of a test above which it is left out.
SLOW = 20


class Recorder:
    """A plugin of pytest that tells coverage.py which test is running, and keeps the seconds."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.stack = [""]
        self.uses: defaultdict[str, set[str]] = defaultdict(set)
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def within(self, context: str) -> Iterator[None]:
        """Count lines for a context, which the one around it uses."""
        self.uses[self.stack[-1]].add(context)
        self.stack.append(context)
        self.coverage.switch_context(context)
        try:
            yield
        finally:
            self.stack.pop()
            self.coverage.switch_context(self.stack[-1])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for module in {item.module for item in session.items}:
            for name, function in list(vars(module).items()):
                if hasattr(function, "cache_clear") and function.__module__ == module.__name__:
                    setattr(module, name, self.watched(function, f"{module.__name__}.{name}"))

    def watched(self, helper: Callable[..., Any], context: str) -> Callable[..., Any]:
        @wraps(helper)
        def call(*arguments: Any, **options: Any) -> Any:
            with self.within(context):
                return helper(*arguments, **options)

        return call

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        with self.within(item.nodeid):
            for definitions in item._fixtureinfo.name2fixturedefs.values():
                self.uses[item.nodeid].update(_context(one) for one in definitions if one.scope != "function")
            found = yield
        self.seconds[item.nodeid] = time.process_time() - began
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        with self.within(_context(fixturedef)):
            return (yield)

    def contexts_of(self, test: str) -> set[str]:
        """A test and everything it uses, also through others."""
        found, waiting = {test}, [test]
        while waiting:
            new = self.uses[waiting.pop()] - found
            found |= new
            waiting += new
        return found


def _context(fixture: Any) -> str:
    return f"{fixture.baseid}@{fixture.argname}"


def functions(tree: ast.AST, outer: str = "<module>") -> Iterator[tuple[range, str]]:
    """Lines and names of all functions and classes, the outer ones first."""
    for node in ast.iter_child_nodes(tree):
        name = outer
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name if outer == "<module>" else f"{outer}.{node.name}"
            yield range(node.lineno, (node.end_lineno or 0) + 1), name
        yield from functions(node, name)


def measure(stored: Path = STORED, tests: tuple[str, ...] = TESTS) -> None:
    """Run tests, by their paths in the folder of tests, and keep which of them run each line."""
    import coverage

    with tempfile.TemporaryDirectory() as folder:
        measured = coverage.Coverage(f"{folder}/coverage", config_file=False, include=[f"{SOURCE}/*"])
        recorder = Recorder(measured)
        measured.start()
        paths = [str(ROOT / "tests" / name) for name in tests]
        options = ["-q", "-n0", "--tb=line", "-p", "no:cacheprovider", "-m", "not slow and not data and not trial"]
        pytest.main([*paths, *options], plugins=[recorder])
        measured.stop()
        names = [test for test, seconds in recorder.seconds.items() if seconds < SLOW]
        users: defaultdict[str, list[int]] = defaultdict(list)
        for number, test in enumerate(names):
            for context in recorder.contexts_of(test):
                users[context].append(number)
        found: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        data = measured.get_data()
        for file in data.measured_files():
            text = Path(file).read_text()
            places = dict.fromkeys(range(1, 1 + len(lines := text.splitlines())), "<module>")
            for numbers, name in functions(ast.parse(text)):
                places.update(dict.fromkeys(numbers, name))
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts if line else ():  # Empty files have a line 0.
                    found[places[line]][lines[line - 1].strip()].update(users.get(context, ()))
    kept = {name: {line: sorted(tests) for line, tests in some.items() if tests} for name, some in found.items()}
    stored.parent.mkdir(exist_ok=True)
    seconds = [recorder.seconds[test] for test in names]
    stored.write_text(json.dumps({"tests": names, "seconds": seconds, "lines": kept}))


class Visits:
    """What was measured."""

    @cached_property
    def stored(self) -> dict[str, Any]:
        if not STORED.exists():
            print("Which test runs which line is measured first: minutes.", flush=True)
            measure()
        return json.loads(STORED.read_text())

    @cached_property
    def width(self) -> list[int]:
        """How many lines each test runs: those with few know them best."""
        width = [0] * len(self.stored["tests"])
        for lines in self.stored["lines"].values():
            for tests in lines.values():
                for test in tests:
                    width[test] += 1
        return width

    def running(self, function: str, line: str) -> set[int]:
        """Tests that run a line of a function; where it is new or runs on import, those that run the function."""
        lines = self.stored["lines"].get(function, {})
        if tests := lines.get(line):
            return set(tests)
        if tests := set().union(*lines.values()):
            return tests
        name = re.match(r"(\w+)\b.*=", line)
        return self.naming(name[1] if name else function.rpartition(".")[2])

    def naming(self, name: str) -> set[int]:
        """Tests that run a line in which a name stands, such as that of a constant."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        everything = (pair for lines in self.stored["lines"].values() for pair in lines.items())
        return set().union(*(tests for line, tests in everything if word.search(line)))


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "tests"))
    measure(*(Path(sys.argv[1]), tuple(sys.argv[2:])) if sys.argv[2:] else ())
