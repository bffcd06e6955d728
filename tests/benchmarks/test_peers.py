"""The lock of other methods: what the published tables name is in it, at the version that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "docs" / "benchmarks"
#: Packages of methods that tables call by another name.
PACKAGES = {
    "magic": "magic-impute",
    "magic alone": "magic-impute",
    "magic of both": "magic-impute",
    "nmf": "scikit-learn",
    "scvi": "scvi-tools",
    "scvi-10": "scvi-tools",
    "scvi-25": "scvi-tools",
    "scanvi": "scvi-tools",
    "harmony": "harmonypy",
    "tangram": "tangram-sc",
}
#: What is written here, or is dice itself.
OWN = re.compile(
    r"DICE|dice\.|PCA|k?NN-\d+|\d+-NN|kNN on|LR on|MLP on|ridge on|ALRA|GMM|exact|no |mean of|Symphony's score|"
    r"1 - max|uncertainty|aps|lac|raps|Leiden|logistic regression|first|second|both|given|built-in"
)
VERSIONED = re.compile(r"(?:.* of )?(?P<name>[\w.-]+) (?P<version>\d+\.\d+[\w.]*)(?:,.*)?")


def locked(path: Path) -> dict[str, str]:
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {name.lower(): version for name, version in (line.split("==") for line in lines)}


def named(table: pd.DataFrame) -> set[tuple[str, str | None]]:
    """Methods of others in a table with their versions; None where a table has none."""
    found: set[tuple[str, str | None]] = set()
    if {"tool", "version"} <= set(table):
        rows = table[["tool", "version"]].drop_duplicates().itertuples(index=False)
        found |= {(tool, version) for tool, version in rows if not OWN.match(tool)}
    for method in table.get("method", pd.Series(dtype=str)).unique():
        match = VERSIONED.fullmatch(method)
        if match:
            found.add((match["name"], match["version"]))
        elif not OWN.match(method):
            found.add((method.split(",")[0], None))
    return found


def test_what_a_table_names():
    table = pd.DataFrame(
        {"method": ["DICE", "LR on PCA", "Tool 1.2.3", "totalVI of scvi-tools 1.4.2, 200 epochs", "MAGIC"]}
    )
    assert named(table) == {("Tool", "1.2.3"), ("scvi-tools", "1.4.2"), ("MAGIC", None)}
    assert named(pd.DataFrame({"tool": ["DICE", "scVI"], "version": ["0.1", "1.4"]})) == {("scVI", "1.4")}


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.csv")), ids=lambda path: path.stem)
def test_every_peer_of_a_table_is_locked(path):
    lock = locked(ROOT / "constraints.txt") | locked(ROOT / "benchmarks" / "peers.txt")
    for name, version in named(pd.read_csv(path)):
        package = PACKAGES.get(name.lower(), name.lower())
        assert package in lock, f"{path.name} has rows of {name}, which is not in benchmarks/peers.txt"
        assert version in (None, lock[package]), f"{path.name} has {name} {version}, the lock has {lock[package]}"


def test_the_two_locks_agree():
    shared, peers = locked(ROOT / "constraints.txt"), locked(ROOT / "benchmarks" / "peers.txt")
    assert {name: shared[name] for name in peers.keys() & shared.keys()} == {
        name: peers[name] for name in peers.keys() & shared.keys()
    }


def test_the_readme_says_how_to_install_every_peer():
    text = (ROOT / "benchmarks" / "README.md").read_text() + (ROOT / "pyproject.toml").read_text()
    missing = [name for name in locked(ROOT / "benchmarks" / "peers.txt") if name not in text.lower()]
    assert not missing
