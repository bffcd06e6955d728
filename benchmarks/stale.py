"""Which tables of docs/benchmarks are older than the code that they describe?

    python benchmarks/stale.py

Every page names the commit that it was made at. Two comparisons with today tell how old it is:

* The results that tests/test_pinned.py keeps: those of every verb on simulated cells, as tests/pinned.json had them at
  that commit. A page whose results have not moved shows what the code of today computes.
* The code of the package, folder by folder. Comments, docstrings, messages, and checks that only raise an error do not
  count.

The answer is docs/benchmark_ages.md, and `make trial` fails if it is not up to date.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from report import markdown

ROOT = Path(__file__).resolve().parents[1]
SOURCE, PAGES = "src/dice", ROOT / "docs" / "benchmarks"
ANSWER = ROOT / "docs" / "benchmark_ages.md"
#: Folders that every figure depends on, and those that only some pages depend on.
EVERYWHERE = ("_data", "_model", "_query", "_train", "options")
ALSO = {
    "_clusters": ("clusters", "demo", "unseen", "scale_cluster", "two_profiles"),
    "_labels": ("coverage", "demo", "depth", "levels", "novelty", "several", "shift", "species", "transfer", "unseen"),
    "_features": ("features",),
}
#: Pinned calls, by the beginnings of their names, that every page depends on, and those of some pages.
PINNED, CALLS = "tests/pinned.json", ("prior", "denoised", "denoised by the prior alone")
CALLS_OF = {
    "clusters": ("clusters",),
    "coverage": ("labels", "sets"),
    "demo": ("annotated",),
    "depth": ("labels", "neighbors"),
    "features": ("features",),
    "levels": ("labels", "safe labels"),
    "novelty": ("novelty",),
    "panels": ("labels", "safe labels", "annotated panel"),
    "paper_settings": ("prior of the paper's network",),
    "real": ("neighbors",),
    "rho": ("rho", "denoised with a rho"),
    "scale_cluster": ("clusters",),
    "several": ("labels", "annotated by several references"),
    "shift": ("labels", "denoised by"),
    "species": ("labels",),
    "synthetic": ("denoised with a rho", "denoised by a mixture"),
    "transfer": ("labels",),
    "two_profiles": ("clusters",),
    "uncertainty": ("labels",),
    "unseen": ("labels", "clusters"),
}
#: Entries of pinned results that are records of a call or sentences, and differences that are rounding, as in
#: tests/test_pinned.py.
RECORDS = re.compile(r"/call/|/warnings|/format|/config/|/params/|/why$")
RELATIVE, ABSOLUTE = 3e-3, 2e-5


def folders(page: str) -> list[str]:
    """Return the folders of the package that a page depends on."""
    return [*EVERYWHERE, *(folder for folder, pages in ALSO.items() if page.startswith(pages))]


@cache
def digest(folder: str, commit: str | None = None) -> str | None:
    """Return a hash of the code in a folder, at a commit or as it is; None if the commit does not exist."""
    try:
        parts = [f"{name} {_bare(text)}" for name, text in _files(f"{SOURCE}/{folder}", commit)]
    except subprocess.CalledProcessError:
        return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _files(folder: str, commit: str | None) -> Iterator[tuple[str, str]]:
    """Yield names and texts of all modules in a folder."""
    if commit is None:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        return
    names = _git("ls-tree", "-r", "--name-only", commit, "--", folder).splitlines()
    for name in sorted((name for name in names if name.endswith(".py")), key=Path):
        yield name, _git("show", f"{commit}:{name}")


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _bare(text: str) -> str:
    """Return code without comments, docstrings and checks, which raise an error or change nothing."""
    return ast.dump(WithoutWords().visit(ast.parse(text)))


class WithoutWords(ast.NodeTransformer):
    """Drops lone strings, such as docstrings, messages of errors, and conditions that do nothing but raise an error."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        if isinstance(node.exc, ast.Call):
            node.exc.args = []
        return node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse:
            return None
        return self.generic_visit(node)


@cache
def pinned(commit: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the pinned results at a commit or as they are; none if the commit has no file of them."""
    try:
        text = (ROOT / PINNED).read_text(encoding="utf-8") if commit is None else _git("show", f"{commit}:{PINNED}")
    except subprocess.CalledProcessError:
        return {}
    return json.loads(text)


def calls_of(page: str) -> list[str]:
    """Return the pinned calls that a page depends on."""
    starts = tuple(start for name, starts in CALLS_OF.items() if page.startswith(name) for start in starts)
    return [call for call in pinned() if call in CALLS or (starts and call.startswith(starts))]


def moved(page: str, commit: str) -> list[str] | None:
    """Return the pinned calls of a page with other results than at a commit, or None if nothing was pinned then."""
    before, now = pinned(commit), pinned()
    calls = [call for call in calls_of(page) if call in before]
    return [call for call in calls if not same(_results(before[call]), _results(now[call]))] if calls else None


def _results(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if not RECORDS.search(name)}


def same(one: Any, other: Any) -> bool:
    """Return whether two pinned results are equal but for rounding. Entries that only one of them has do not count."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(same(one[name], other[name]) for name in one.keys() & other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= ABSOLUTE + RELATIVE * max(abs(one), abs(other))
    return bool(one == other)


def table() -> pd.DataFrame:
    """Return one row per page: its commit, and the pinned results and folders of code that have changed since."""
    rows = []
    for path in sorted(PAGES.glob("*.md")):
        made = re.search(r"^Made by .* at commit ([0-9a-f]{7,})", path.read_text(), flags=re.MULTILINE)
        if made is None:
            continue
        commit = made[1]
        if digest("_model", commit) is None:
            results = code = "commit is not in the history"
        else:
            calls = moved(path.stem, commit)
            results = "not pinned then" if calls is None else ", ".join(calls) or "nothing"
            changed = [folder for folder in folders(path.stem) if digest(folder, commit) != digest(folder)]
            code = ", ".join(changed) or "nothing"
        name = f"[{path.stem}](benchmarks/{path.name})"
        rows.append({"page": name, "commit": commit, "results changed since": results, "code changed since": code})
    return pd.DataFrame(rows)


def page() -> str:
    """Return the text of docs/benchmark_ages.md."""
    found = table()
    today = (found[["results changed since", "code changed since"]] == "nothing").any(axis=1).sum()
    return (
        "---\norphan: true\n---\n\n# Age of the tables\n\n"
        f"{today} of {len(found)} pages show what the code of today computes: no result of the verbs that they measure "
        "has changed since they were made, or no code has.\n\n"
        "- **Results** are those of every verb on simulated cells, which `tests/test_pinned.py` keeps and compares to "
        "0.3 %. The table names the calls with other results than at the commit of the page. Pages that are older than "
        "these results have *not pinned then*.\n"
        "- **Code** names the folders of `src/dice` whose code has changed. Comments, docstrings, messages and checks "
        "that only raise an error do not count. Most of these changes simplify code.\n\n"
        "Seconds and memory are those of the commit in any case. Written by `python benchmarks/stale.py`.\n\n"
        f"{markdown(found)}\n"
    )


if __name__ == "__main__":
    ANSWER.write_text(page(), encoding="utf-8")
