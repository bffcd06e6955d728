"""Results of a benchmark as CSV and Markdown under docs/benchmarks, with what they were made by."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

OUT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
PACKAGES = ("scdice", "torch", "numpy", "scikit-learn", "anndata", "scanpy")


def publish(name: str, rows: pd.DataFrame, *, by: list[str], title: str, note: str = "", across: str = "data") -> None:
    """Write every row to `name`.csv, and means with 95 % intervals over seeds to `name`.md.

    Parameters
    ----------
    name
        Name of the files.
    rows
        One row per run: columns `across` and ``seed``, those in `by`, and figures.
    by
        Columns that name what is compared.
    title, note
        Heading and what the reader should know.
    across
        Column of the data sets; the last table is the mean over them.
    """
    OUT.mkdir(parents=True, exist_ok=True)
    rows.round(5).to_csv(OUT / f"{name}.csv", index=False)
    figures = [c for c in rows if c not in (across, "seed", *by) and pd.api.types.is_numeric_dtype(rows[c])]
    parts = [
        "---\norphan: true\n---",
        f"# {title}",
        provenance(),
        *([note] if note else []),
        f"Means over {rows['seed'].nunique()} seeds, with the half-width of their 95 % interval.",
    ]
    for data, part in rows.groupby(across, sort=False):
        parts += [f"## {data}", table(part.groupby(by, sort=False, dropna=False)[figures])]
    n_data = rows[across].nunique()
    if n_data > 1:
        # The spread over seeds of the mean over data sets, not the spread between data sets.
        means = rows.groupby([*by, "seed"], sort=False, dropna=False)[figures].mean()
        parts += [f"## Mean over {n_data} data sets", table(means.groupby(by, sort=False, dropna=False))]
    (OUT / f"{name}.md").write_text("\n\n".join(parts) + "\n")


def provenance() -> str:
    """The command, the versions and the machine."""
    script = Path(sys.argv[0])
    command = shlex.join(["python", f"benchmarks/{script.name}", *sys.argv[1:]])
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return f"Made by `{command}` with {versions}; Python {platform.python_version()}, {os.cpu_count()} cores."


def table(groups: pd.core.groupby.DataFrameGroupBy) -> str:
    """Means and intervals of groups of rows as Markdown."""
    mean, sem, count = groups.mean(), groups.sem(), groups.count()
    lines = ["| " + " | ".join([*mean.index.names, *mean.columns]) + " |"]
    lines.append("|" + "---|" * (len(mean.index.names) + len(mean.columns)))
    for index in mean.index:
        labels = [str(label) for label in (index if isinstance(index, tuple) else (index,))]
        cells = [_cell(mean.loc[index, c], sem.loc[index, c], count.loc[index, c]) for c in mean.columns]
        lines.append("| " + " | ".join(labels + cells) + " |")
    return "\n".join(lines)


def _cell(mean: float, sem: float, count: int) -> str:
    from scipy.stats import t

    if not np.isfinite(mean):
        return "-"
    if count < 2 or not np.isfinite(sem):
        return f"{mean:.3f}"
    return f"{mean:.3f} ± {t.ppf(0.975, count - 1) * sem:.3f}"
