"""Speed of the posterior, as ratios within one run.

    python benchmarks/speed.py [--cells 1000]

1. The direct mean and 20 samples against the literal sampler of the paper on the same network. The literal one takes
   hours: a share of its evaluations is timed and the rest extrapolated, evaluations being all it does.
2. Cells per second and peak memory of the direct mean for 25,000 to 100,000 cells with 25 latents.
3. The share of time that the few-step sampler spends in matrix products.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch.profiler import ProfilerActivity, profile

import dice
from dice._core.noise import CellNoise, cell_keys
from dice._core.paper import SCHEDULE
from dice._core.sampler import sample_ancestral, sample_sde

OUTPUT = Path(__file__).parents[1] / "docs" / "benchmarks"
N_CHAINS = 10
PAPER_RHO = np.linspace(5, 0.5, 100)


def timed(function, *args, repeats=3, **kwargs) -> float:
    """Fastest of a few runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(*args, **kwargs)
        times.append(time.perf_counter() - start)
    return min(times)


def against_the_literal_sampler(n_cells: int) -> pd.DataFrame:
    """Evaluations per cell and wall time of direct mean, samples and literal chains on the paper's small network."""
    reference, _ = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset="paper-small", max_steps=20)
    denoiser = dice.Prior.from_anndata(reference).denoiser
    y = torch.randn(n_cells, 15, generator=torch.Generator().manual_seed(0))
    noise = CellNoise(torch.as_tensor(cell_keys(map(str, range(n_cells)), 0)))
    level = torch.tensor(1.0)
    literal = sum(SCHEDULE.start(rho) for rho in PAPER_RHO) * N_CHAINS
    share = SCHEDULE.start(0.5)
    with torch.no_grad():
        seconds = {
            "direct mean": timed(denoiser, y, level),
            "20 samples": timed(lambda: [sample_sde(denoiser, y, level, noise.spawn(i)) for i in range(20)]),
            "literal, 10 chains": timed(sample_ancestral, denoiser, y, torch.tensor(0.5), noise) * literal / share,
        }
    table = pd.DataFrame({"evaluations": [1, 200, literal], "seconds": list(seconds.values())}, index=list(seconds))
    table["times faster"] = table["seconds"].iloc[-1] / table["seconds"]
    return table


def extra_memory(function, *args, **kwargs) -> float:
    """Largest resident memory during a call beyond that before it, in MB, sampled every 2 ms (Linux)."""

    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

    done, peak = threading.Event(), [resident()]
    before = peak[0]

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    function(*args, **kwargs)
    done.set()
    watcher.join()
    return peak[0] - before


@torch.no_grad()
def denoise_chunks(prior: dice.Prior, latents: np.ndarray, size: int = 8192) -> None:
    """The network's part of the direct mean alone."""
    for start in range(0, len(latents), size):
        prior.denoise(torch.as_tensor(latents[start : start + size]), 2.0)


def measure(n_cells: int) -> dict[str, float]:
    """Direct mean through the public call on sparse cells x 1,000 genes at 5 % non-zero, and what it adds in memory."""
    rng = np.random.default_rng(0)

    def cells(n: int) -> ad.AnnData:
        matrix = sparse.random(n, 1000, 0.05, format="csr", dtype=np.float32, random_state=rng)
        return ad.AnnData(matrix, obs=pd.DataFrame(index=[f"cell_{i}" for i in range(n)]))

    reference, query = cells(2000), cells(n_cells)
    dice.tl.train_prior(reference, n_latent=25, max_steps=50)
    extra = extra_memory(dice.tl.denoise, query, reference, uncertainty=False)
    seconds = timed(dice.tl.denoise, query, reference, uncertainty=False, repeats=2)
    network = timed(denoise_chunks, dice.Prior.from_anndata(reference), query.obsm["X_dice_pca"], repeats=2)
    return {"cells": n_cells, "seconds": seconds, "network": network, "extra MB": extra}


def against_cells() -> pd.DataFrame:
    """`measure` for growing numbers of cells, each in a process of its own: the peak of memory is a process's."""
    command = [sys.executable, __file__, "--measure"]
    runs = [
        subprocess.run([*command, str(n)], capture_output=True, text=True, check=True)
        for n in (25_000, 50_000, 100_000)
    ]
    return pd.DataFrame([json.loads(run.stdout) for run in runs])


def matrix_product_share() -> float:
    """Share of the default network's sampler in matrix products, by the profiler."""
    reference, _ = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    denoiser = dice.Prior.from_anndata(reference).denoiser
    y = torch.randn(8192, 15)
    noise = CellNoise(torch.as_tensor(cell_keys(map(str, range(len(y))), 0)))
    # One thread: with more, waiting for each other would be booked as time in the operations.
    torch.set_num_threads(1)
    with torch.no_grad():
        sample_sde(denoiser, y, torch.tensor(1.0), noise)
        with profile(activities=[ProfilerActivity.CPU]) as record:
            sample_sde(denoiser, y, torch.tensor(1.0), noise)
    events = record.key_averages()
    print(events.table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40))
    total = sum(event.self_cpu_time_total for event in events)
    # addmm includes the copy of the bias that it starts from.
    products = sum(event.cpu_time_total for event in events if event.key in {"aten::addmm", "aten::mm"})
    return products / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--measure", type=int, help="measure the direct mean of so many cells and print it as JSON")
    arguments = parser.parse_args()
    n_cells = arguments.cells
    dice.settings.verbosity = 0
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    OUTPUT.mkdir(exist_ok=True)
    literal = against_the_literal_sampler(n_cells)
    print(f"{n_cells} cells, paper-small network, literal time extrapolated from its last iteration")
    print(literal.round(4).to_string(), "\n")
    literal.round(5).to_csv(OUTPUT / "speed_literal.csv")
    cells = against_cells()
    print(cells.round(2).to_string(index=False), "\n")
    cells.round(3).to_csv(OUTPUT / "speed_cells.csv", index=False)
    print(f"share of the sampler in matrix products: {matrix_product_share():.2f}")


if __name__ == "__main__":
    main()
