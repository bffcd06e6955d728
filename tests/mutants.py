"""Do the tests notice a wrong line? `make mutants` changes one place at a time and runs the tests that should see it.

A mutant is a module with one small change: a comparison that now takes the bound in, a constant doubled, a clamp or a
guard dropped, a plus that became a minus, `and` for `or`, a whole number off by one. Each runs in a process of its own,
which imports the changed module in place of the file: no file is touched, and an interrupted run leaves nothing behind.
The tests that run the changed line are run (tests/visits.py), those first that run little else, for a minute by the
seconds that they took without the change, and until the first test fails.

Every run draws a sample of its own, so that no test can be written with the sample in view: every kind of change has
the same share, and within a kind those mutants are taken whose identity has the smallest hash with the seed. The seed
is told, and `--seed` draws the same sample again; a change of the code exchanges few of it. Mutants that no test could
tell from the original are listed in mutants_equivalent.csv, each with the reason. What only words an error, a warning
or a line of the log is not changed, nor are sizes of chunks and numbers up to 1e-6, which only stand for rounding.

    python tests/mutants.py                        a new sample
    python tests/mutants.py --seed 1 --publish     this sample; a row of docs/benchmarks/mutants.csv
    python tests/mutants.py --only sets       those of one module
    python tests/mutants.py --list                 the sample itself
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import csv
import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import re
import resource
import secrets
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from visits import Visits

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dice"
TABLE = ROOT / "docs" / "benchmarks" / "mutants.csv"
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.csv")
LAYERS = ("_model", "_data", "_query", "_labels", "_clusters", "_features", "metrics")
SIZE = 60
#: A test of the values of numbers that stand outside of functions: it comes last, after those that see what they do.
NUMBERS = "tests/test_pinned.py::test_chosen_numbers_are_as_they_were"
#: Numbers against rounding and division by zero, of which twice as much is as good.
TINY = 1e-6
#: Seconds of the tests of a mutant, as they were measured without it.
BUDGET = 60
JOBS = int(os.environ.get("JOBS", "1"))
#: CPU seconds that the tests of a mutant may take, several times what they need: an endless loop is noticed as well.
PATIENCE = 160
#: Share of a sample that has to be noticed.
ENOUGH = 0.80
#: Exit code of a run that did not come to its tests: nothing was noticed.
BROKEN = 70
#: Loaded once, and shared by the processes of all mutants; dice itself is imported by each.
HEAVY = ("anndata", "dask.array", "pytest", "scanpy", "scipy.stats", "sklearn.cluster", "torch", "umap")

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
CLAMPS = {"maximum", "minimum", "max", "min", "clip", "clamp_min", "clamp_max", "clamp", "nan_to_num"}
#: A change here fails at once, whatever the tests are: axes of arrays and lengths of shapes are no decisions.
AXES = {"axis", "dim", "keepdims", "keepdim", "stacklevel", "ndmin"}


@dataclass(frozen=True)
class Mutant:
    """One change of one place; its identity holds no line number, so that it survives changes elsewhere."""

    module: str
    function: str
    kind: str
    line: str
    change: str
    #: Which of several places that would otherwise have the same identity.
    occurrence: int
    #: Number of the place in the walk through the module.
    place: int
    number: int
    #: First line behind a guard.
    body: str = ""
    #: Whether it stands outside of the statements of functions.
    outside: bool = False

    @property
    def identity(self) -> tuple[str, ...]:
        return self.module, self.function, self.kind, self.line, f"{self.change} #{self.occurrence}"

    def rank(self, seed: int) -> str:
        return hashlib.sha256("\0".join([str(seed), *self.identity]).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.module}:{self.number} in {self.function} [{self.kind}] {self.line}   ({self.change})"


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Kinds of change that fit a node, and what becomes of it."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[operator]):
            new.ops = [COMPARISONS[type(operator)]()]
            yield "comparison", new
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC and not _is_text(new):
            new.op = ARITHMETIC[type(operator)]()
            yield "arithmetic", new
        case ast.BoolOp(op=operator):
            new.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "boolean", new
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "boolean", operand
        case ast.Constant(value=value) if type(value) is float:
            yield "constant", ast.Constant(2 * value if value else 1.0)
        case ast.Constant(value=value) if type(value) is int:
            yield "off by one", ast.Constant(value + 1)
            if value > 2:
                yield "constant", ast.Constant(2 * value)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in CLAMPS:
            # What is clamped: the first argument that is no number, or else the object whose method it is.
            numbers = ast.Constant | ast.UnaryOp | ast.Starred | ast.GeneratorExp
            bare = [argument for argument in new.args if not isinstance(argument, numbers)]
            own = isinstance(new.func, ast.Attribute) and name.startswith("clamp")
            if own or (len(new.args) > 1 and bare):
                yield "clamp", new.func.value if own else bare[0]
        case ast.If(body=[ast.Raise() | ast.Return() | ast.Continue() | ast.Break()], orelse=[]):
            new.test = ast.Constant(False)
            yield "guard", new
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if re.match(r"_?(check|require|known)", name):
            yield "guard", ast.Pass()


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(part, ast.JoinedStr | ast.List) or isinstance(getattr(part, "value", None), str)
               for part in (node.left, node.right))  # fmt: skip


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, str]]:
    """Every node that could be changed, in a fixed order: its parent, where it hangs, itself, and its function."""

    def walk(parent: ast.AST, function: str) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, str]]:
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for index, node in enumerate(value) if isinstance(value, list) else ((None, value),):
                if not isinstance(node, ast.AST) or _is_axis(parent, node) or _is_wording(node) or _is_hint(node):
                    continue
                inner = function
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    inner = node.name if function == "<module>" else f"{function}.{node.name}"
                elif isinstance(node, ast.expr | ast.stmt):
                    yield parent, name, index, node, function
                yield from walk(node, inner)

    return walk(tree, "<module>")


def _is_axis(parent: ast.AST, node: ast.AST) -> bool:
    match parent:
        case ast.keyword(arg=name):
            return name in AXES
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return node is parent.slice
        case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant() as only]) if node is only:
            return name in {"sum", "mean", "max", "min", "std", "var", "any", "all", "argmax", "argmin", "flatten"}
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _is_wording(node: ast.AST) -> bool:
    """Whether something only words what a user is told: formatted text, an error, a line of the log."""
    match node:
        case ast.JoinedStr() | ast.Raise():
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="_log"), attr=name)):
            return name in {"say", "warn", "hint"}
    return False


def _is_hint(node: ast.AST) -> bool:
    """Whether something only decides about time and memory, or about rounding: sizes of chunks, tiny numbers."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name.startswith(("CHUNK", "BLOCK"))
        case ast.Constant(value=float(value)):
            return 0 < value <= TINY
    return False


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a module."""
    text, module = path.read_text(), path.relative_to(SOURCE).as_posix()
    lines, seen = text.splitlines(), Counter[tuple[str, ...]]()
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    inside = {line for node in functions for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)}
    for place, (_, _, _, node, function) in enumerate(places(ast.parse(text))):
        for kind, new in changes(node):
            line = lines[node.lineno - 1].strip()
            change = "dropped" if kind == "guard" else f"{ast.unparse(node)} -> {ast.unparse(new)}"
            key = (function, kind, line, change)
            seen[key] += 1
            body = lines[node.body[0].lineno - 1].strip() if isinstance(node, ast.If) else ""
            outside = node.lineno not in inside
            yield Mutant(module, function, kind, line, change, seen[key], place, node.lineno, body, outside)


def changed(mutant: Mutant) -> ast.AST:
    """The tree of the module with the change."""
    tree = ast.parse((SOURCE / mutant.module).read_text())
    parent, name, index, node, _ = next(p for i, p in enumerate(places(tree)) if i == mutant.place)
    new = next(new for kind, new in changes(node) if kind == mutant.kind)
    new = ast.copy_location(new, node)
    if index is None:
        setattr(parent, name, new)
    else:
        getattr(parent, name)[index] = new
    return ast.fix_missing_locations(tree)


def sample(size: int, seed: int) -> list[Mutant]:
    """The same number of mutants of every kind, by the smallest hashes; sorted by module."""
    everything = [m for layer in LAYERS for path in sorted((SOURCE / layer).rglob("*.py")) for m in mutants_of(path)]
    kinds = sorted({mutant.kind for mutant in everything})
    ranked = [sorted((m for m in everything if m.kind == kind), key=lambda m: m.rank(seed)) for kind in kinds]
    turns = [mutant for turn in zip_longest(*ranked) for mutant in turn if mutant is not None]
    return sorted(turns[:size], key=lambda m: (m.module, m.place, m.kind))


class Changed(importlib.machinery.SourceFileLoader):
    """Loads a module from a changed tree; whatever was compiled before is not looked at."""

    def __init__(self, name: str, path: str, tree: ast.AST) -> None:
        super().__init__(name, path)
        self.tree = tree

    def get_code(self, fullname: str) -> Any:
        return compile(self.tree, self.path, "exec")


class Finder:
    """Finds the changed module before anybody else finds the file."""

    def __init__(self, mutant: Mutant) -> None:
        parts = ("dice", *Path(mutant.module).with_suffix("").parts)
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.tree = changed(mutant)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        spec.loader = Changed(name, spec.origin, self.tree)
        return spec


def tests_of(mutant: Mutant, visits: Visits) -> tuple[str, ...]:
    """Tests that run the changed line, in their order: behind a guard, with few other lines, quick."""
    tests, seconds = visits.stored["tests"], visits.stored["seconds"]
    behind = visits.running(mutant.function, mutant.body) if mutant.body else set()
    found = visits.running(mutant.function, mutant.line)
    ranked = sorted(found | behind, key=lambda test: (test not in behind, visits.width[test], seconds[test]))
    spent, chosen = 0.0, []
    for test in ranked:
        if not chosen or spent + seconds[test] <= BUDGET:
            chosen.append(tests[test])
            spent += seconds[test]
    outside = mutant.kind in ("constant", "off by one", "arithmetic") and mutant.outside
    return (*chosen, NUMBERS) if outside else tuple(chosen)


def start(mutant: Mutant | None, tests: tuple[str, ...], folder: str) -> int:
    """Run tests in a process of their own; without a mutant, on the code as it is."""
    process = os.fork()
    if process:
        return process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()  # Tests may start others: all end together.
    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE + 10))
    try:
        with Path(folder, f"{os.getpid()}.txt").open("w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        if mutant:
            sys.meta_path.insert(0, Finder(mutant))
        import pytest

        quiet = ["-x", "-q", "--tb=short", "--show-capture=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
        # Plugins of libraries that are loaded already: their assertions are not ours.
        quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning", f"--basetemp={folder}/{os.getpid()}"]
        code = pytest.main([*tests, *quiet])
        os._exit(int(code))
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happened
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(BROKEN)


def verdicts(
    wanted: list[tuple[Mutant | None, tuple[str, ...]]], folder: str
) -> Iterator[tuple[Mutant | None, tuple[str, ...], str, float, str]]:
    """Whether tests failed, passed or did not end, their seconds, and which one failed; several at a time."""
    waiting, running = list(reversed(wanted)), dict[int, tuple[Mutant | None, tuple[str, ...], float]]()
    try:
        while waiting or running:
            while waiting and len(running) < JOBS:
                mutant, tests = waiting.pop()
                running[start(mutant, tests, folder)] = mutant, tests, time.monotonic()
            time.sleep(0.05)
            for process, (mutant, tests, began) in list(running.items()):
                done, status = os.waitpid(process, os.WNOHANG)
                if not done:
                    continue
                stop(process, ended=True)
                del running[process]
                word = said(os.waitstatus_to_exitcode(status), process, folder)
                yield mutant, tests, word, time.monotonic() - began, noticed_by(process, folder)
    finally:
        for process in running:
            stop(process, ended=False)


def stop(process: int, *, ended: bool) -> None:
    """End the tests and whatever they started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    if not ended:
        os.waitpid(process, 0)


def said(code: int, process: int, folder: str) -> str:
    """What pytest's exit code means; a run without tests has told nothing, and one that was killed too little."""
    text = Path(folder, f"{process}.txt").read_text() if code > 0 else ""
    if code in (3, 4, 5, BROKEN) and " ERROR collecting " not in text:  # By a name of a test that is gone.
        raise SystemExit(f"{text}\nMeasure again which test runs which line: python tests/visits.py")
    if code == -signal.SIGXCPU:
        return "endless"
    return "died" if code < 0 else "failed" if code else "passed"


def noticed_by(process: int, folder: str) -> str:
    """The test that failed, or the file that could not be imported."""
    lines = Path(folder, f"{process}.txt").read_text().splitlines()
    return next((line.split(" - ")[0] for line in lines if line.startswith(("FAILED ", "ERROR "))), "")


def read_equivalent() -> dict[tuple[str, ...], str]:
    """Reasons why mutants are none, by identity."""
    with EQUIVALENT.open(newline="") as file:
        return {tuple(row[:-1]): row[-1] for row in list(csv.reader(file))[1:]}


def check_unchanged(test: str, journal: Journal, folder: str) -> None:
    """A test that noticed a change must pass on the code as it is."""
    if (test,) in journal.words:
        return
    ((*_, word, _, _),) = verdicts([(None, (test,))], folder)
    if word != "passed":
        raise SystemExit(f"{test} {word} without any change: repair the tests first.")
    journal.add(word, (test,))


class Journal:
    """What a run has found, line by line in a file, for one that is taken up again; survivors are tried again."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self.words = {tuple(names): found for found, names in map(json.loads, lines)}

    def add(self, found: str, names: tuple[str, ...]) -> None:
        self.words[names] = found
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps([found, names]) + "\n")


def publish(seed: int, found: dict[Mutant, str]) -> None:
    """Write the counts of a sample into its row of the table."""
    n = Counter(found.values())
    noticed, survived = n["failed"] + n["endless"], n["passed"] + n["died"]
    score = f"{noticed / max(noticed + survived, 1):.0%}"
    row = [str(value) for value in (seed, len(found), n["equivalent"], noticed, survived, score)]
    with TABLE.open(newline="") as file:
        head, *rows = csv.reader(file)
    with TABLE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *(old for old in rows if old[0] != row[0]), row])


def check_source() -> None:
    """Every mutant of this folder would be noticed, or none, if the tests imported another one."""
    spec = importlib.util.find_spec("dice")
    origin = Path(spec.origin if spec and spec.origin else "nowhere").resolve()
    if origin != (SOURCE / "__init__.py").resolve():
        raise SystemExit(f"The dice that is imported is {origin}: run `make install`, or set PYTHONPATH=src.")


def warm_up() -> None:
    """Import and compile once what every process would compile again: neighbours and UMAP take ten seconds."""
    os.environ["NUMBA_THREADING_LAYER"] = "workqueue"  # The others do not work in a process that was forked.
    for name in HEAVY:
        importlib.import_module(name)
    import anndata as ad
    import numpy as np
    import scanpy as sc

    cells = ad.AnnData(np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32))
    sc.pp.neighbors(cells, use_rep="X", n_neighbors=8)
    sc.tl.umap(cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of a module's path")
    parser.add_argument("--size", type=int, default=SIZE, help="number of mutants in the sample")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="to draw the same sample again")
    parser.add_argument("--publish", action="store_true", help=f"write the score into {TABLE.name}")
    parser.add_argument("--list", action="store_true", help="show the sample and end")
    parser.add_argument("--journal", type=Path, help="file to keep what was noticed in, to go on with the same code")
    options = parser.parse_args()
    chosen = [mutant for mutant in sample(options.size, options.seed) if options.only in mutant.module]
    print(f"Sample of {len(chosen)} mutants with --seed {options.seed}.", flush=True)
    if options.list:
        print(*chosen, sep="\n")
        return 0
    # Ended from outside, the run stops its tests and removes its folder as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    equivalent = read_equivalent()
    found = {mutant: "equivalent" for mutant in chosen if mutant.identity in equivalent}
    journal = Journal(options.journal)
    found |= {m: journal.words[m.identity] for m in chosen if m not in found and m.identity in journal.words}
    left = [mutant for mutant in chosen if mutant not in found]
    check_source()
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        visits = Visits()
        wanted = [(mutant, tests_of(mutant, visits)) for mutant in left]
        found |= {mutant: "passed" for mutant, tests in wanted if not tests}  # No test runs the line.
        for mutant, _, word, took, test in verdicts([one for one in wanted if one[1]], folder):
            if "::" in test:
                check_unchanged(test.partition(" ")[2], journal, folder)
            found[mutant] = word
            print(f"{word:8} {took:5.0f} s  {len(found)}/{len(chosen)}  {mutant}\n         {test}", flush=True)
            if word not in ("passed", "died"):
                journal.add(word, mutant.identity)
    survived = (m for m, word in found.items() if word in ("passed", "died"))
    survivors = sorted(survived, key=lambda m: (m.module, m.number))
    real = sum(word != "equivalent" for word in found.values())
    print(f"\n{real - len(survivors)} of {real} mutants were noticed, {1 - len(survivors) / max(real, 1):.1%}; "
          f"{len(found) - real} more are equivalent. Survivors:", *survivors, sep="\n")  # fmt: skip
    if options.publish:
        publish(options.seed, found)
    return int(len(survivors) > (1 - ENOUGH) * real)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
