"""Figures that are printed where users look first are those of the committed tables."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs" / "benchmarks"


def printed(page: str, row: str) -> list[float]:
    """Figures with three decimals in the row of a page that begins so."""
    lines = [line for line in (ROOT / page).read_text().splitlines() if line.startswith(f"| {row}")]
    assert len(lines) == 1, f"{page} has {len(lines)} rows that begin with {row!r}"
    return [float(figure) for figure in re.findall(r"\b\d\.\d{3}\b", lines[0])]


def means(tables: list[str], columns: list[str], methods: list[str], group: str) -> list[float]:
    """Means over seeds and data sets, method by method, rounded as they are printed."""
    rows = pd.concat([pd.read_csv(TABLES / f"{table}.csv") for table in tables])
    found = rows.groupby(["method", "seed", group])[columns].mean().groupby("method").mean()
    return [round(float(found.loc[method, column]), 3) for method in methods for column in columns]


CLUSTERED = ["DICE cluster", "Harmony, resolution 1", "PhenoGraph", "PCA, resolution 1"]
LABELLED = ["DICE", "celltypist 1.7.1", "LR on genes", "LR on PCA", "CellMapper 0.2.5", "symphonypy 0.2.4"]


@pytest.mark.parametrize(
    ("page", "row"),
    [
        ("README.md", "clusters at the tool's own"),
        ("docs/benchmarks.md", "clusters of held-out cells at the tool's own"),
    ],
)
def test_clusters(page, row):
    assert printed(page, row) == means(["clusters"], ["ari"], CLUSTERED, "data")


def test_labels():
    found = printed("docs/benchmarks.md", "labels on eight pairs")
    assert found == means(["transfer", "transfer_peers"], ["accuracy", "macro_f1"], LABELLED, "pair")


def test_proteins():
    rows = pd.read_csv(TABLES / "features.csv")
    found = rows[rows["pair"] == "bmmc"].groupby("method")[["correlation", "coverage"]].mean().round(3)
    ours, neighbours, ridge = (found.loc[name] for name in ("DICE", "15-NN on PCA", "ridge on PCA"))
    expected = [ours["correlation"], ours["coverage"], neighbours["correlation"], ridge["correlation"]]
    assert printed("README.md", "proteins never measured") == expected
