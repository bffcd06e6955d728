"""Memory and time as cells grow beyond what fits, on synthetic sparse stores.

    python benchmarks/scale.py [--folder FOLDER] [--largest 1000000] [--reference 500000] [--without-cluster]

1. Queries of 10,000 cells to a million x 2,000 genes, about 5 % non-zero, from zarr to zarr: seconds of each phase and
   the peak of memory.
2. A reference of 500,000 cells: seconds of the passes and of training, and the peak of memory.
3. The largest query by a local cluster of one and of two processes: seconds, and the largest difference.

Each measurement is a process of its own, whose peak memory the kernel tells (Linux). Stores are made once in FOLDER
(about 1 GB), by default a temporary folder that is removed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import zarr
from report import OUT, prepare
from scipy import sparse

import dice
from dice._data.files import read_lazy
from dice._query.query import Query
from dice.tl import _train_prior

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
N_GENES, N_TYPES, BLOCK = 2000, 20, 8000


def expression(rows: np.ndarray, seed: int) -> sparse.csr_matrix:
    """Log-normalised cells of a few types, about 5 % non-zero; a block depends on its seed alone."""
    profiles = np.random.default_rng(0).gamma(0.3, 0.05 / 0.3, size=(N_TYPES, N_GENES)).clip(1e-4, 0.8)
    rng = np.random.default_rng([seed, int(rows[0, 0])])
    rates = profiles[rng.integers(0, N_TYPES, len(rows))]
    counts = sparse.csr_matrix(rng.poisson(rates, size=rates.shape).astype(np.float32))
    totals = np.maximum(np.asarray(counts.sum(1)), 1)
    return sparse.csr_matrix(counts.multiply(1e4 / totals)).log1p()


def make_store(path: Path, n_cells: int, seed: int) -> None:
    """Write the cells block by block."""
    rows = da.arange(n_cells, chunks=BLOCK)[:, None]
    meta = sparse.csr_matrix((0, N_GENES), dtype=np.float32)
    x = rows.map_blocks(expression, seed=seed, chunks=(rows.chunks[0], (N_GENES,)), dtype=np.float32, meta=meta)
    obs = pd.DataFrame(index=[f"cell_{seed}_{i}" for i in range(n_cells)])
    var = pd.DataFrame(index=[f"gene_{i}" for i in range(N_GENES)])
    ad.AnnData(x, obs=obs, var=var).write_zarr(path)


class Timed:
    """Seconds that functions of a module take, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def watch(self, owner: object, name: str, label: str) -> None:
        function = getattr(owner, name)

        def timed(*args, **kwargs):
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[label] = self.seconds.get(label, 0) + time.perf_counter() - start

        setattr(owner, name, timed)


def peak_mb() -> float:
    """Largest resident memory so far. (What getrusage tells begins with that of the parent process.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def query(folder: Path, n_cells: int, uncertainty: bool) -> dict[str, float]:
    """From zarr to zarr; with the uncertainty, a cell takes five evaluations in place of one."""
    timed, before = Timed(), peak_mb()
    timed.watch(Query.latents, "func", "reading and projection")
    timed.watch(Query.posterior, "func", "network")
    target = folder / f"denoised_{n_cells}.zarr"
    start, cpu = time.perf_counter(), time.process_time()
    dice.tl.denoise_to_zarr(
        folder / f"query_{n_cells}.zarr",
        folder / "prior.h5ad",
        target,
        copy_x=False,
        method=dice.Direct(uncertainty=uncertainty),
    )
    total, cpu = time.perf_counter() - start, time.process_time() - cpu
    shutil.rmtree(target)
    return {
        "cells": n_cells,
        "evaluations": 5 if uncertainty else 1,
        **timed.seconds,
        "seconds": total,
        "CPU seconds": cpu,
        "peak MB": peak_mb(),
        "of which imports": before,
    }


def reference(folder: Path, n_cells: int, max_steps: int | None = None) -> dict[str, float]:
    """Train on a lazily opened store, and keep the prior for the queries."""
    timed, before = Timed(), peak_mb()
    timed.watch(_train_prior, "train_denoiser", "training")
    adata = read_lazy(folder / f"reference_{n_cells}.zarr")
    start, cpu = time.perf_counter(), time.process_time()
    dice.tl.train_prior(adata, training=dice.Training(max_steps=max_steps))
    total, cpu = time.perf_counter() - start, time.process_time() - cpu
    dice.Prior.from_anndata(adata).save(folder / "prior.h5ad")
    return {
        "cells": n_cells,
        "passes": total - timed.seconds["training"],
        **timed.seconds,
        "seconds": total,
        "CPU seconds": cpu,
        "peak MB": peak_mb(),
        "of which imports": before,
    }


def cluster(folder: Path, n_cells: int, n_first: int) -> dict[str, float]:
    """Projection by one worker process and by two, and how far the results are apart."""
    from dask.distributed import Client, LocalCluster

    row: dict[str, float] = {"cells": n_cells}
    results = []
    for n_workers in (1, 2):
        timed = Timed()
        timed.watch(Query.latents, "func", f"project, {n_workers} worker(s)")
        target = folder / f"by_{n_workers}.zarr"
        with (
            LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as workers,
            Client(workers),
        ):
            # Workers import what they need before the clock runs.
            query(folder, n_first, uncertainty=False)
            timed.seconds.clear()
            dice.tl.denoise_to_zarr(
                folder / f"query_{n_cells}.zarr",
                folder / "prior.h5ad",
                target,
                copy_x=False,
                method=dice.Direct(uncertainty=False),
            )
        row |= timed.seconds
        results.append(ad.io.read_elem(zarr.open_group(target, mode="r")["obsm/X_dice"]))
        shutil.rmtree(target)
    return row | {"largest difference": float(np.abs(results[0] - results[1]).max())}


PARTS = {"query": query, "reference": reference, "cluster": cluster}


def measure(part: str, folder: Path, *arguments: object) -> dict[str, float]:
    """Run one part in a process of its own."""
    command = [sys.executable, __file__, "--folder", str(folder), "--part", part, *map(json.dumps, arguments)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def report(name: str, rows: list[dict[str, float]]) -> pd.DataFrame:
    table = pd.DataFrame(rows)
    print(table.round(2).to_string(index=False), "\n", flush=True)
    table.round(3).to_csv(OUT / f"scale_{name}.csv", index=False)
    return table


def run(folder: Path, largest: int, n_reference: int, *, by_cluster: bool) -> None:
    sizes = [n for n in SIZES if n <= largest] or [largest]
    for name, n_cells, seed in [("reference", n_reference, 1), *(("query", n, 2) for n in sizes)]:
        path = folder / f"{name}_{n_cells}.zarr"
        if not path.exists():
            print(f"making {path.name}", flush=True)
            make_store(path, n_cells, seed)
    training = report("reference", [measure("reference", folder, n_reference)])
    runs = [measure("query", folder, n, uncertainty) for uncertainty in (False, True) for n in sizes]
    queries = report("query", runs)
    claims = {
        "peak memory of queries under 2 GB": (queries["peak MB"] < 2000).all(),
        "peak memory of the reference under 3 GB": (training["peak MB"] < 3000).all(),
        "reading and projection take longer than the network (mean alone)": (
            queries[queries["evaluations"] == 1].pipe(lambda t: t["reading and projection"] > t["network"]).iloc[-1]
        ),
    }
    if by_cluster:
        two = report("cluster", [measure("cluster", folder, sizes[-1], sizes[0])])
        claims |= {
            "two processes project faster than one": (two["project, 2 worker(s)"] < two["project, 1 worker(s)"]).all(),
            "same numbers from a cluster": (two["largest difference"] < 1e-5).all(),
        }
    for name, holds in claims.items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where stores are made and kept")
    parser.add_argument("--largest", type=int, default=1_000_000, help="cells of the largest query")
    parser.add_argument("--reference", type=int, default=500_000, help="cells of the reference")
    parser.add_argument("--without-cluster", action="store_true", help="leave the third measurement out")
    parser.add_argument("--part", nargs="+", help="one measurement with its arguments, printed as JSON")
    arguments = parser.parse_args()
    prepare()
    if arguments.part:
        name, *values = arguments.part
        print(json.dumps(PARTS[name](arguments.folder, *map(json.loads, values))))
        return
    OUT.mkdir(parents=True, exist_ok=True)
    sizes, by_cluster = (arguments.largest, arguments.reference), not arguments.without_cluster
    if arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        run(arguments.folder, *sizes, by_cluster=by_cluster)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), *sizes, by_cluster=by_cluster)


if __name__ == "__main__":
    main()
