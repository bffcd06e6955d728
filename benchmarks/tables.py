"""Tables of benchmarks: means with intervals over seeds, as CSV and Markdown with all that is needed to repeat them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

OUTPUT = Path(__file__).parents[1] / "docs" / "benchmarks"


def interval(values: pd.Series) -> str:
    """Mean and half the width of its 95 % interval (Student's t over seeds)."""
    values = values.dropna()
    if len(values) < 2:
        return f"{values.mean():.3f}" if len(values) else "-"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} ± {half:.3f}"


def resume(name: str, by: list[str]) -> tuple[list[dict[str, object]], set[tuple]]:
    """Runs of an earlier, interrupted call, and what they were of; delete the .csv to start afresh."""
    path = OUTPUT / f"{name}.csv"
    if not path.exists():
        return [], set()
    rows = pd.read_csv(path)
    return rows.to_dict("records"), set(rows[by].itertuples(index=False, name=None))


def summary(rows: pd.DataFrame, by: list[str], values: list[str]) -> pd.DataFrame:
    return rows.groupby(by, sort=False)[values].agg(interval).reset_index()


def save(name: str, title: str, rows: pd.DataFrame, tables: dict[str, pd.DataFrame], note: str = "") -> None:
    """All single runs as CSV, and the tables with their provenance as Markdown."""
    OUTPUT.mkdir(exist_ok=True)
    rows.round(5).to_csv(OUTPUT / f"{name}.csv", index=False)
    text = f"# {title}\n\n{note}\n\n{provenance(rows)}\n"
    for heading, table in tables.items():
        text += f"\n## {heading}\n\n{markdown(table)}\n"
    (OUTPUT / f"{name}.md").write_text(text)
    print(text)


def markdown(table: pd.DataFrame) -> str:
    lines = ["| " + " | ".join(map(str, table.columns)) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in table.itertuples(index=False)]
    return "\n".join(lines)


def provenance(rows: pd.DataFrame) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "scanpy", "scikit-learn", "numpy"))
    command = "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    seeds = sorted(map(int, rows["seed"].unique())) if "seed" in rows else []
    return (
        f"`{command}`; commit {commit}, {packages}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, "
        f"seeds {seeds}. "
        "Means and 95 % intervals over seeds; every run is in the .csv beside this page."
    )
