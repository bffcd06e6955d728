"""Seconds and memory of ``dice.tl.cluster`` as cells grow, on cells of Liu.

    python benchmarks/scale_clusters.py [--cells 20000 200000]

Cells are drawn with replacement, and a tenth of the counts of each is left out, so that no two are the same. The prior
is trained on 5,000 of them and the query is denoised before the clock runs. Each size is a process of its own, whose
peak memory the kernel tells (Linux): it includes the data.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import anndata as ad
import numpy as np
import pandas as pd
import trial
from data import load
from report import prepare, save
from scale import peak_mb
from scipy import sparse

import dice
from dice._model.counts import recover, split

SET, PRIOR_CELLS, SEED = "pbmc_liu_covid_citeseq", 5_000, 0


def drawn(cells: ad.AnnData, n: int) -> ad.AnnData:
    """Return n cells, each with nine tenths of the counts of a random cell."""
    rng = np.random.default_rng(SEED)
    rows = rng.integers(cells.n_obs, size=n)
    parts = [
        split(recover(cells.X[some]), np.full((len(some), 1), 0.9), rng)[0].expression
        for some in np.array_split(rows, max(n // 10_000, 1))
    ]
    return ad.AnnData(sparse.csr_matrix(sparse.vstack(parts)), var=cells.var)


def measure(n_cells: int) -> dict[str, float]:
    """Cluster `n_cells` cells."""
    cells = load(SET)
    cells = drawn(cells, n_cells)
    prior = cells[:PRIOR_CELLS].copy()
    dice.tl.train_prior(prior)
    dice.tl.denoise(cells, prior)
    start, cpu = time.perf_counter(), time.process_time()
    dice.tl.cluster(cells, prior)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    found = cells.uns["dice_cluster"]["choice"]["n_clusters"]
    return {"cells": n_cells, "clusters": int(found), "seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--part", type=int, help="one size, printed as JSON")
    arguments = parser.parse_args()
    prepare()
    if arguments.part:
        print(json.dumps(measure(arguments.part)))
        return
    rows = []
    for n_cells in [600] if trial.FOLDER else arguments.cells:
        command = [sys.executable, __file__, "--part", str(n_cells)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(run.stdout.splitlines()[-1]) | {"seed": SEED})
        print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    note = "\n\n".join(__doc__.strip().split("\n\n")[2:])
    save("scale_clusters", "Clusters of many cells", table, {"Sizes": table.drop(columns="seed")}, note)


if __name__ == "__main__":
    main()
