"""DICE beside other tools on the same cells: seconds and memory of each task, as ratios within one run.

    make bench-speed
    python benchmarks/speed_peers.py [--repeats 5] [--tools ...] [--scvi-epochs 20] [--cpu] [--scvi path/to/python]

* ``training``          everything that is learned from the reference (DICE with its PCA).
* ``denoising of PCs``  the query's 50 principal components, denoised. MAGIC smooths over the query alone, and over the
  cells of both, as real.py runs it; DICE learned from the reference before.
* ``embedding``         from the expression (scVI: counts) of the query to its embedding, after training.
* ``ten samples``       ten posterior samples of every query cell, after training.
* ``labels``            from a labelled reference to labels of the query: training and transfer together.

The cells are those of bmmc (4,000 and 1,000 in 3,000 genes), else of the pancreas atlas, else simulated. Every tool
runs in a process of its own with its defaults, one after the other, in turning order, ``--repeats`` times; what takes
less than seconds is called three times, and the fastest counts. scVI is timed over some of its epochs
(``--scvi-epochs 0``: all of them). CellTypist 1.7.1 does not run on scikit-learn 1.9 and needs an interpreter of its
own (``--celltypist``), and scVI may have one (``--scvi``). ``--cpu`` counts seconds of the processor, for a machine
that other programs use, and writes speed_cpu. A tool that does not run is named with its last words.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import anndata as ad
import pandas as pd
from data import Missing, pair, simulated, without_single_cells
from peers import pca
from report import save, summary
from speed_tools import PCS, TOOLS, TRAINING

TOOL = Path(__file__).with_name("speed_tools.py")


def run_apart(tool: str, folder: Path, epochs: int, python: str) -> list[dict[str, object]] | str:
    """One tool in a process of its own, or its last words."""
    try:
        done = subprocess.run([python, TOOL, tool, folder, str(epochs)], capture_output=True, text=True)
    except OSError as error:
        return str(error.strerror)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def choose() -> tuple[str, ad.AnnData, ad.AnnData]:
    """The cells that can be had."""
    for name in ("bmmc", "pancreas"):
        try:
            reference, query = pair(name, 0)
            return name, without_single_cells(reference, "cell_type").copy(), query
        except Missing as missing:
            print(missing)
    return "simulated cells", *simulated(4000, 1000, n_genes=3000)


def with_ratios(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Seconds of each tool by those of DICE for the same task and repetition."""
    table = pd.DataFrame(rows)
    own = table.loc[table["tool"] == "DICE", ["task", "seed", "seconds"]]
    table = table.merge(own, on=["task", "seed"], how="left", suffixes=("", " of DICE"))
    return table.assign(**{"times DICE": table["seconds"] / table.pop("seconds of DICE")})


def note(rows: pd.DataFrame, data: str, failed: dict[str, str], epochs: int) -> str:
    means = rows.groupby(["task", "tool"])["times DICE"].mean().dropna()
    claims = {
        "Denoising of the same PCs is faster than by MAGIC": ((PCS, "MAGIC"), 1),
        "Training is at least 35 times faster than that of scVI with its defaults": ((TRAINING, "scVI"), 35),
    }
    lines = [
        f"Cells: {data}. `times DICE` is the time of a tool by that of DICE in the same repetition (`seed`). `extra "
        f"MB` is the rise of memory during the task. Imports are not counted. Seconds are those of "
        f"{'one thread of the processor' if os.environ.get('DICE_CPU') else 'the clock'}. Training of scVI is "
        + (f"extrapolated linearly from {epochs} epochs." if epochs else "timed as a whole."),
        *(
            f"{text}: {'yes' if means[key] > factor else 'no'}, {means[key]:.1f} times."
            for text, (key, factor) in claims.items()
            if key in means
        ),
        *(f"{tool} was not run: {reason}" for tool, reason in failed.items()),
    ]
    return "\n\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tools", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument("--scvi-epochs", type=int, default=20, help="epochs that are timed; 0 for all")
    parser.add_argument("--celltypist", metavar="PYTHON", default=sys.executable, help="interpreter with CellTypist")
    parser.add_argument("--scvi", metavar="PYTHON", default=sys.executable, help="interpreter with scvi-tools")
    parser.add_argument("--cpu", action="store_true", help="seconds of the processor instead of the clock")
    parser.add_argument("--cells", type=int, help="simulate so many reference cells instead, for a trial")
    arguments = parser.parse_args()
    # The page names the command, and a path of this machine is of no use to its readers.
    apart = {arguments.celltypist, arguments.scvi}
    sys.argv = ["path/to/python" if argument in apart else argument for argument in sys.argv]
    if arguments.cpu:
        os.environ["DICE_CPU"] = "yes"
    with tempfile.TemporaryDirectory() as folder:
        compare(arguments, Path(folder))


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    """All tools on the same cells, again and again."""
    n = arguments.cells
    data, reference, query = ("simulated cells", *simulated(n, n // 4)) if n else choose()
    pca(reference, query, 0)
    reference.write_h5ad(folder / "reference.h5ad")
    query.write_h5ad(folder / "query.h5ad")
    rows: list[dict[str, object]] = []
    failed: dict[str, str] = {}
    for repeat in range(arguments.repeats):
        for tool in arguments.tools[:: -1 if repeat % 2 else 1]:
            if tool in failed:
                continue
            python = {"CellTypist": arguments.celltypist, "scVI": arguments.scvi}.get(tool, sys.executable)
            found = run_apart(tool, folder, arguments.scvi_epochs, python)
            print(repeat, tool, found, flush=True)
            if isinstance(found, str):
                failed[tool] = found
            else:
                rows += [{"data": data, "tool": tool, "seed": repeat, **row} for row in found]
        if not rows:
            sys.exit("No tool could be run, so that there is nothing to compare; the reasons are above.")
        table = with_ratios(rows)
        tables = {
            str(task): summary(part, ["tool", "version"], ["seconds", "times DICE", "extra MB"])
            for task, part in table.groupby("task", sort=False)
        }
        text = note(table, data, failed, arguments.scvi_epochs)
        save("speed_cpu" if arguments.cpu else "speed_peers", "Speed beside other tools", table, tables, text)


if __name__ == "__main__":
    main()
