from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Scripts of benchmarks/ as modules, by name; they import each other so, and their tables land in `tmp_path`."""
    monkeypatch.syspath_prepend(FOLDER)
    before = set(sys.modules)
    importlib.import_module("report").OUT = tmp_path
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if FOLDER in Path(getattr(sys.modules[name], "__file__", None) or "").parents:
            del sys.modules[name]
