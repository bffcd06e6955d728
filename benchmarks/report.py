"""Results of a benchmark as CSV and Markdown under docs/benchmarks, with what they were made by."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

import compare
import pandas as pd
import trial
from compare import interval

#: Where tables land; those of a trial do not mix with measured ones.
OUT = trial.FOLDER or Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
#: When the script began, to tell how long it took.
START = time.perf_counter()
PACKAGES = ("torch", "numpy", "scikit-learn", "anndata", "scanpy")


def prepare() -> None:
    """What every script does before it measures: no chatter, and few steps of training where it is tried out."""
    import dice

    dice.settings.verbosity = 0
    warnings.simplefilter("ignore")
    trial.shorten()


def extend(path: Path, label: str, names: list[str], n_seeds: int, run: Callable[[str, int], dict[str, float]]) -> None:
    """Rows of a method that has a file of its own, each written as soon as it is made; known ones are left alone."""
    done = set(pd.read_csv(path)[["method", "pair", "seed"]].itertuples(index=False)) if path.exists() else set()
    for seed in range(n_seeds):
        for name in names:
            if (label, name, seed) not in done:
                row = {"pair": name, "method": label, "seed": seed} | run(name, seed)
                print(row, flush=True)
                pd.DataFrame([row]).round(5).to_csv(path, mode="a", header=not path.exists(), index=False)


def repeat(
    name: str,
    choices: Iterable[str],
    run: Callable[[str, int], Iterable[dict[str, object]]],
    show: Callable[[pd.DataFrame], None],
    *,
    across: str = "data",
    option: str = "--data",
    usual: Iterable[str] | None = None,
) -> pd.DataFrame:
    """The command line of a script that measures every data set with every seed, and all rows that it comes to.

    Parameters
    ----------
    name
        Name of its files: what an earlier, interrupted call has measured is not measured again.
    choices
        Data sets that there are.
    run
        Rows of one data set and seed, without those two columns.
    show
        Writes the tables; called after every data set, so that a long run that is cut short is not lost.
    across, option
        What a data set is called in the table and on the command line.
    usual
        Data sets that are measured if none is asked for; by default all.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__.split("\n")[0])
    parser.add_argument(option, dest="names", nargs="*", choices=list(choices), default=list(usual or choices))
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    prepare()
    rows, done = resume(name, [across, "seed"])
    for seed in range(arguments.seeds):
        for data in trial.some(arguments.names):
            if (data, seed) not in done:
                rows += [{across: data, "seed": seed} | row for row in run(data, seed)]
                show(pd.DataFrame(rows))
    return pd.DataFrame(rows)


def resume(name: str, by: list[str]) -> tuple[list[dict[str, object]], set[tuple]]:
    """Runs of an earlier, interrupted call, and what they were of; delete the .csv to start afresh."""
    path = OUT / f"{name}.csv"
    if not path.exists():
        return [], set()
    rows = pd.read_csv(path)
    return rows.to_dict("records"), set(rows[by].itertuples(index=False, name=None))


def publish(
    name: str,
    rows: pd.DataFrame,
    *,
    by: list[str],
    title: str,
    note: str = "",
    across: str = "data",
    beside: pd.DataFrame | None = None,
) -> None:
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
    beside
        Rows of other methods out of a .csv of their own: shown on the data sets of `rows`, in place of rows of the same
        run, and not written.
    """
    shown = rows
    if beside is not None:
        shown = pd.concat([rows, beside[beside[across].isin(rows[across])]], ignore_index=True)
        shown = shown.drop_duplicates([across, "seed", *by], keep="last")
    figures = [c for c in shown if c not in (across, "seed", *by) and pd.api.types.is_numeric_dtype(shown[c])]
    tables = {str(data): summary(part, by, figures) for data, part in shown.groupby(across, sort=False)}
    if len(tables) > 1:
        # Means of what was measured on every data set with a seed: others would be of easier or harder ones.
        everywhere = shown.groupby([*by, "seed"], dropna=False)[across].transform("nunique") == len(tables)
        # The spread over seeds of the mean over data sets, not the spread between data sets.
        means = shown[everywhere].groupby([*by, "seed"], sort=False, dropna=False)[figures].mean().reset_index()
        tables[f"Mean over {len(tables)} data sets"] = summary(means, by, figures)
    save(name, title, rows, tables, note)


def save(
    name: str, title: str, rows: pd.DataFrame, tables: dict[str, pd.DataFrame], note: str = "", *, repeated: bool = True
) -> None:
    """All single runs as CSV, and the tables with their provenance as Markdown.

    Pages in :data:`compare.COMPARISONS` begin with ranks and paired differences. A page that is drawn again from the
    rows that it was made of keeps what it says of how they were made.
    """
    OUT.mkdir(parents=True, exist_ok=True)
    path, text = OUT / f"{name}.csv", rows.round(5).to_csv(index=False)
    origin = _origin(name) if path.exists() and path.read_text() == text else None
    path.write_text(text)
    parts = ["---\norphan: true\n---", f"# {title}", note.strip(), origin or provenance(rows, repeated)]
    tables = compare.tables(name, rows, OUT) | tables
    parts += [f"## {heading}\n\n{markdown(table)}" for heading, table in tables.items()]
    (OUT / f"{name}.md").write_text("\n\n".join(part for part in parts if part) + "\n")


def _origin(name: str) -> str | None:
    """What a page says of how its rows were made."""
    page = OUT / f"{name}.md"
    lines = page.read_text().splitlines() if page.exists() else []
    return next((line for line in lines if line.startswith("Made by ")), None)


def summary(rows: pd.DataFrame, by: list[str], figures: list[str]) -> pd.DataFrame:
    """Mean and interval of every figure over seeds."""
    return rows.groupby(by, sort=False, dropna=False)[figures].agg(interval).reset_index()


def markdown(table: pd.DataFrame) -> str:
    lines = ["| " + " | ".join(map(str, table.columns)) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in table.itertuples(index=False)]
    return "\n".join(lines)


def provenance(rows: pd.DataFrame, repeated: bool = True) -> str:
    """Return the command, the versions, the machine, the seeds and the seconds of the call."""
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    commit = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True).stdout.strip()
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    seeds = f", seeds {sorted(map(int, rows['seed'].unique()))}" if "seed" in rows else ""
    runs = "Means and 95 % intervals over seeds; every run is" if repeated else "All rows are"
    return (
        f"Made by `{command}` at commit {commit} with {versions}; Python {platform.python_version()}, "
        f"{os.cpu_count()} cores{seeds}; the last call took "
        f"{time.perf_counter() - START:,.0f} s. {runs} in `.csv` beside this page."
    )
