"""Several calls at once, and a core that somebody else keeps busy: time and memory as ratios to one call alone.

    python benchmarks/load.py [--query 200000] [--reference 100000] [--steps 100] [--repeats 3] [--folder FOLDER]

1. A reference is trained for a few steps: alone, and with a busy core.
2. A query in memory is denoised: once, by four threads at once, by two processes at once, and with a busy core.

Both are done with one thread of torch, and with all cores. Every row has processes of its own, which have read their
cells before the clock runs; peak memory is what the kernel tells (Linux). A busy core is a process that counts, at the
same priority; there is one for every core but the first. A row is the repetition of median time. Stores are those of
scale.py, made once in FOLDER, by default a temporary folder that is removed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import anndata as ad
import numpy as np
import pandas as pd
from report import prepare, save
from scale import make_store, peak_mb

import dice
from dice._data.files import read_lazy

NOTE = """
Seconds are those of a clock on the wall, from the first call's start to the last one's end, and *CPU seconds* those of
all processes together; every row is the repetition of median time. Ratios are to the first row of the same task. Four
calls that share two cores evenly take twice as long as one. *asleep* is `OMP_WAIT_POLICY=passive`: threads that wait
for others sleep instead of spinning. The prior was trained for a few steps only, which is enough to take its time.
"""
#: How figures are shown; others have two digits.
FORMATS = {"seconds": "{:.1f}", "CPU seconds": "{:.1f}", "peak MB": "{:.0f}", "largest difference": "{:.0e}"}


class Case(NamedTuple):
    """How a task is done: calls at once in each of some processes, threads of torch, other work on the machine."""

    name: str
    processes: int = 1
    calls: int = 1
    threads: str = "one"
    busy: bool = False


#: What decides how many threads torch has, and what they do while they wait.
THREADS = {"one": {"OMP_NUM_THREADS": "1"}, "all": {}, "all, asleep": {"OMP_WAIT_POLICY": "passive"}}
TRAINING = (
    Case("one call"),
    Case("one call, busy core", busy=True),
    Case("one call, all cores, busy core", threads="all", busy=True),
)
DENOISING = (
    Case("one call"),
    Case("four threads", calls=4),
    Case("two processes", processes=2),
    Case("one call, busy core", busy=True),
    Case("one call, all cores", threads="all"),
    Case("one call, all cores, busy core", threads="all", busy=True),
    Case("one call, all cores, busy core, asleep", threads="all, asleep", busy=True),
)


@contextmanager
def busy_cores(wanted: bool):
    """Keep every core but the first busy."""
    command = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(command) for _ in range(max(os.cpu_count() - 1, 1) if wanted else 0)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def denoise(folder: Path, n_cells: int, calls: int) -> Callable[[], float]:
    """Denoise the query as often as is asked for, at once; how far results are from those of one call alone."""
    stored = ad.read_zarr(folder / f"query_{n_cells}.zarr")
    prior = dice.Prior.load(folder / "prior.h5ad")
    dice.tl.denoise(stored[:100].copy(), prior)

    def once(_: int) -> np.ndarray:
        # An object of its own around the same matrix, as every call writes its result.
        query = ad.AnnData(stored.X, obs=stored.obs[[]].copy(), var=stored.var)
        dice.tl.denoise(query, prior)
        return query.obsm["X_dice"]

    def run() -> float:
        with ThreadPoolExecutor(calls) as pool:
            found = list(pool.map(once, range(calls)))
        first = folder / "alone.npy"
        if not first.exists():
            np.save(first, found[0])
        return max(float(np.abs(one - np.load(first)).max()) for one in found)

    return run


def train(folder: Path, n_cells: int, max_steps: int) -> Callable[[], float]:
    """Train on the reference; how far latents are from those of the first training."""
    adata = read_lazy(folder / f"reference_{n_cells}.zarr")

    def run() -> float:
        dice.tl.train_prior(adata, training=dice.Training(max_steps=max_steps))
        path, prior = folder / "prior.h5ad", dice.Prior.from_anndata(adata)
        if not path.exists():
            prior.save(path)
        return float(np.abs(prior.projection.loadings - dice.Prior.load(path).projection.loadings).max())

    return run


TASKS = {"denoise": denoise, "train": train}


def work(task: str, folder: Path, *sizes: int) -> None:
    """One process: read, say so, wait for the start of all, run, and tell what it took."""
    run = TASKS[task](folder, *sizes)
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = time.process_time()
    difference = run()
    told = {"CPU seconds": time.process_time() - cpu, "peak MB": peak_mb(), "largest difference": difference}
    print(json.dumps(told), flush=True)


def measure(task: str, case: Case, folder: Path, *sizes: int) -> dict[str, object]:
    """All processes of a case, started together when each has read its cells."""
    command = [sys.executable, __file__, "--work", task, str(folder), *map(str, sizes)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    workers = [subprocess.Popen(command, env=inherited | THREADS[case.threads], **pipes) for _ in range(case.processes)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n", f"{task}, {case.name}: a process has failed"
    with busy_cores(case.busy):
        start = time.perf_counter()
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        told = [json.loads(worker.stdout.readline()) for worker in workers]
        seconds = time.perf_counter() - start
    for worker in workers:
        worker.communicate()
    row = {"task": task, "case": case.name, "calls": case.processes * case.calls, "seconds": seconds}
    row |= {name: sum(one[name] for one in told) for name in ("CPU seconds", "peak MB")}
    row |= {"largest difference": max(one["largest difference"] for one in told)}
    print(row, flush=True)
    return row


def median(task: str, case: Case, repeats: int, folder: Path, *sizes: int) -> dict[str, object]:
    """The repetition of median time; how far results were apart is the largest of all repetitions."""
    rows = sorted((measure(task, case, folder, *sizes) for _ in range(repeats)), key=lambda row: row["seconds"])
    return rows[repeats // 2] | {"largest difference": max(row["largest difference"] for row in rows)}


def run(folder: Path, n_query: int, n_reference: int, steps: int, repeats: int) -> None:
    for name, n_cells, seed in (("reference", n_reference, 1), ("query", n_query, 2)):
        if not (folder / f"{name}_{n_cells}.zarr").exists():
            make_store(folder / f"{name}_{n_cells}.zarr", n_cells, seed)
    tasks = [("train", case, n_reference, steps) for case in TRAINING]
    tasks += [("denoise", case, n_query, case.calls) for case in DENOISING]
    headings = {
        "train": f"Training, reference of {n_reference:,} cells x 2,000 genes, at most {steps} steps a network",
        "denoise": f"Denoising, query of {n_query:,} cells x 2,000 genes",
    }
    rows = []
    for task, case, *sizes in tasks:
        rows.append(median(task, case, repeats, folder, *sizes))
        # After every row, so that a long run that is cut short is not lost.
        publish(pd.DataFrame(rows), headings)


def publish(table: pd.DataFrame, headings: dict[str, str]) -> None:
    """Write the table, with ratios to the first row of each task."""
    first = table.groupby("task", sort=False).transform("first")
    for name in ("seconds", "CPU seconds", "peak MB"):
        table[f"{name.removesuffix(' MB')}, ratio"] = table[name] / first[name]
    tables = {headings[str(task)]: _shown(part) for task, part in table.groupby("task", sort=False)}
    save("load", "Under load", table, tables, NOTE.strip(), repeated=False)


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    """The figures that are compared, as text."""
    figures = {name: table[name].map(FORMATS.get(name, "{:.2f}").format) for name in table.columns[3:]}
    return pd.DataFrame({"case": table["case"], "calls": table["calls"]} | figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--query", type=int, default=200_000, help="cells of the query")
    parser.add_argument("--reference", type=int, default=100_000, help="cells of the reference")
    parser.add_argument("--steps", type=int, default=100, help="steps that each network is trained for at most")
    parser.add_argument("--repeats", type=int, default=3, help="how often every case is measured")
    parser.add_argument("--folder", type=Path, help="where stores are made and kept")
    parser.add_argument("--work", nargs="+", help="one process of a case, with its arguments")
    arguments = parser.parse_args()
    prepare()
    if arguments.work:
        task, folder, *sizes = arguments.work
        work(task, Path(folder), *map(int, sizes))
        return
    sizes = arguments.query, arguments.reference, arguments.steps, arguments.repeats
    if arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        run(arguments.folder, *sizes)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), *sizes)


if __name__ == "__main__":
    main()
