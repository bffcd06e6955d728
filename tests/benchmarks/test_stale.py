"""benchmarks/stale.py: which tables are older than the code that they describe."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
with_history = pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="needs git and the history of the project"
)


def test_words_do_not_make_a_table_stale(script) -> None:
    bare = script("stale")._bare
    checked = "def f(x):\n    if x:\n        raise ValueError({})\n    {}x += 1\n"
    assert bare(checked.format("f'{x} is wrong'", "")) == bare(checked.format("'x must be 0'", ""))
    assert bare(checked.format("x", "")) == bare("def f(x):\n    x += 1\n")
    assert bare(checked.format("x", "")) != bare(checked.format("x", "if y: "))
    assert bare('"""A."""\nx = 1  # why\n') == bare('"""B.\n\nC."""\n\nx = 1\n')
    assert bare("x = 1\n") != bare("x = 2\n")


@with_history
def test_the_code_of_a_commit_is_its_own(script) -> None:
    stale = script("stale")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    unchanged = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "src/dice/_clusters"], cwd=ROOT).returncode == 0
    assert (stale.digest("_clusters", head.strip()) == stale.digest("_clusters")) is unchanged
    assert stale.digest("_clusters", "0" * 40) is None


def test_pages_depend_on_their_own_slice(script) -> None:
    folders = script("stale").folders
    assert "_clusters" in folders("clusters_whole")
    assert "_labels" in folders("transfer")
    assert not {"_clusters", "_labels", "_features"} & set(folders("synthetic"))


def test_every_page_depends_on_pinned_calls(script) -> None:
    stale = script("stale")
    for path in stale.PAGES.glob("*.md"):
        assert {"prior", "denoised"} <= set(stale.calls_of(path.stem))
    assert "clusters of samples" in stale.calls_of("clusters_whole")
    assert not any(call.startswith("label") for call in stale.calls_of("clusters_whole"))
    starts = {start for some in stale.CALLS_OF.values() for start in some}
    assert all(any(call.startswith(start) for call in stale.pinned()) for start in starts)


def test_rounding_does_not_move_a_result(script) -> None:
    same = script("stale").same
    assert same({"x": [[3], 1.0, 2.0]}, {"x": [[3], 1.0, 2.001], "new": 1.0})
    assert not same({"x": [[3], 1.0, 2.0]}, {"x": [[3], 1.0, 2.1]})
    assert not same({"x": [[3], 1.0]}, {"x": [[4], 1.0]})
    assert not same({"x": {"names": ["B"]}}, {"x": {"names": ["T"]}})


@with_history
def test_pinned_results_of_a_commit_are_its_own(script) -> None:
    stale = script("stale")
    clean = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", stale.PINNED], cwd=ROOT).returncode == 0
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (stale.pinned(head.strip()) == stale.pinned()) is clean
    assert stale.moved("clusters", head.strip()) == [] or not clean
    assert stale.moved("clusters", "0" * 40) is None


@with_history
@pytest.mark.trial
def test_the_page_of_ages_is_up_to_date(script) -> None:
    stale = script("stale")
    assert stale.ANSWER.read_text(encoding="utf-8") == stale.page(), "run python benchmarks/stale.py"
