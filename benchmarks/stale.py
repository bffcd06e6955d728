"""Which tables of docs/benchmarks are older than the code that they describe?

    python benchmarks/stale.py

Every page names the commit that it was made at. For each of them, the code of the package at that commit is compared
with the code of today, folder by folder. Comments, docstrings, messages, and checks that only raise an error do not
count. The answer is docs/benchmark_ages.md, and `make trial` fails if it is not up to date.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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


def table() -> pd.DataFrame:
    """Return one row per page: its commit, and the folders whose code has changed since."""
    rows = []
    for path in sorted(PAGES.glob("*.md")):
        made = re.search(r"^Made by .* at commit ([0-9a-f]{7,})", path.read_text(), flags=re.MULTILINE)
        if made is None:
            continue
        commit = made[1]
        changed = [folder for folder in folders(path.stem) if digest(folder, commit) != digest(folder)]
        unknown = digest("_model", commit) is None
        since = "commit is not in the history" if unknown else ", ".join(changed) or "nothing"
        rows.append({"page": f"[{path.stem}](benchmarks/{path.name})", "commit": commit, "changed since": since})
    return pd.DataFrame(rows)


def page() -> str:
    """Return the text of docs/benchmark_ages.md."""
    found = table()
    today = (found["changed since"] == "nothing").sum()
    return (
        "---\norphan: true\n---\n\n# Age of the tables\n\n"
        f"{today} of {len(found)} pages were made by the code of today. For the others, the table names the folders of "
        "`src/dice` whose code has changed since the page was made; comments, docstrings, messages and checks that "
        "only raise an error do not count. A change may leave the figures as they are: most changes simplify code. "
        "Written by `python benchmarks/stale.py`.\n\n"
        f"{markdown(found)}\n"
    )


if __name__ == "__main__":
    ANSWER.write_text(page(), encoding="utf-8")
