"""Every example in a docstring of a public name runs and gives what it says."""

from __future__ import annotations

import doctest
import inspect

import pytest

import dice

OBJECTS = {"Prior": dice.Prior} | {
    f"{module}.{name}": getattr(getattr(dice, module), name)
    for module in ("pp", "tl", "pl", "datasets", "metrics")
    for name in getattr(dice, module).__all__
    if callable(getattr(getattr(dice, module), name))
}
EXAMPLES = {name: thing for name, thing in OBJECTS.items() if ">>>" in (inspect.getdoc(thing) or "")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    for example in finder.find(EXAMPLES[name], name, globs={}):
        runner.run(example, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_every_public_name_has_an_example():
    assert set(OBJECTS) == set(EXAMPLES)
