"""What the posterior costs, as ratios within one run.

    make bench-speed [ARGS="--only literal evaluations cells latents products --max-cells 1000000"]

* ``literal``      the direct mean and 20 samples against the literal sampler of the paper on the same network. The
  literal one takes hours: a share of its evaluations is timed and the rest extrapolated, evaluations being all it does.
* ``evaluations``  how often the network is evaluated for a cell.
* ``cells``        seconds and peak memory of the direct mean for 1,000 to a million cells with 25 latents.
* ``latents``      the same for 10,000 cells and 10 to 100 latents, with training and samples.
* ``products``     the share of time that the few-step sampler spends in matrix products.

Each part writes docs/benchmarks/speed_<part>.csv and .md. Other tools are in speed_peers.py, files in scale.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable

import anndata as ad
import numpy as np
import pandas as pd
import torch
from clock import extra_memory, timed
from report import prepare, save
from scipy import sparse
from torch.nn.modules.module import register_module_forward_hook
from torch.profiler import ProfilerActivity, profile

import dice
from dice._model.networks import Denoiser
from dice._model.networks.paper import first_step
from dice._model.sampler import CellNoise, cell_seeds, sample_sde

N_CHAINS = 10
PAPER_RHO = np.linspace(5, 0.5, 100)
#: Evaluations of the literal sampler for a cell.
LITERAL = sum(first_step(rho) for rho in PAPER_RHO) * N_CHAINS
CELLS = (1_000, 10_000, 100_000, 1_000_000)
LATENTS = (10, 25, 50, 100)
N_GENES, N_COUNTED, N_STEPS = 1000, 50, 200


def against_the_literal_sampler(n_cells: int) -> pd.DataFrame:
    """Evaluations per cell and wall time of direct mean, samples and literal chains on the paper's small network."""
    reference, _ = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset="paper-small", training=dice.Training(max_steps=20))
    denoiser = dice.Prior.from_anndata(reference).denoiser
    y = torch.randn(n_cells, 15, generator=torch.Generator().manual_seed(0))
    noise = CellNoise(torch.as_tensor(cell_seeds(map(str, range(n_cells)), 0)))
    level, last = torch.tensor(1.0), torch.tensor(0.5)
    with torch.no_grad():
        seconds = {
            "direct mean": timed(lambda: denoiser(y, level)),
            "20 samples": timed(lambda: [sample_sde(denoiser, y, level, noise.spawn(i)) for i in range(20)]),
            "literal, 10 chains": timed(lambda: denoiser.draw(y, last, noise)) * (LITERAL / first_step(0.5)),
        }
    table = pd.DataFrame({"sampler": list(seconds), "evaluations": [1, 200, LITERAL], "seconds": seconds.values()})
    table["times faster"] = table["seconds"].iloc[-1] / table["seconds"]
    return table


def evaluations() -> pd.DataFrame:
    """Evaluations of the network for a cell of the query, counted."""
    reference, query = cells(2000), cells(500)
    dice.tl.train_prior(reference, n_latent=25, training=dice.Training(max_steps=20))
    prior = dice.Prior.from_anndata(reference)
    calls = {
        "mean": {"method": dice.Direct(uncertainty=False), "shift": False},
        "mean and uncertainty": {"shift": False},
        "mean and uncertainty, shifted (default)": {},
        "mean and 10 samples": {"n_samples": 10, "shift": False},
        "Student-t genes, split Gibbs": {"likelihood": dice.StudentT(per_gene=True), "shift": False},
    }
    counted = {
        name: count(lambda options=options: dice.tl.denoise(query, prior, **options)) / query.n_obs
        for name, options in calls.items()
    }
    counted["Algorithm 1 as printed, 100 iterations, 10 chains"] = float(LITERAL)
    return pd.DataFrame({"call": list(counted), "evaluations per cell": list(counted.values())})


def count(function: Callable[[], object]) -> int:
    """Cells that any denoiser is evaluated at during a call."""
    seen = [0]

    def note(module: torch.nn.Module, inputs: tuple, _: object) -> None:
        if isinstance(module, Denoiser):
            seen[0] += len(inputs[0])

    handle = register_module_forward_hook(note)
    function()
    handle.remove()
    return seen[0]


def cells(n: int, seed: int = 0) -> ad.AnnData:
    """Sparse cells x 1,000 genes with about 50 non-zero values each."""
    rng = np.random.default_rng([seed, n])
    genes = rng.integers(0, N_GENES, n * N_COUNTED, dtype=np.int32)
    values = rng.random(n * N_COUNTED, dtype=np.float32)
    matrix = sparse.csr_matrix((values, genes, np.arange(0, n * N_COUNTED + 1, N_COUNTED)), shape=(n, N_GENES))
    matrix.sum_duplicates()
    return ad.AnnData(matrix, obs=pd.DataFrame(index=[f"cell_{i}" for i in range(n)]))


def measure(n_cells: int, n_latent: int, samples: bool) -> dict[str, float]:
    """Direct mean through the public call, what it adds in memory, and how much of it is the network."""
    reference, query = cells(2000), cells(n_cells, seed=1)
    options = {"n_latent": n_latent, "training": dice.Training(max_steps=N_STEPS)}
    training = timed(lambda: dice.tl.train_prior(reference, **options), repeats=1)
    prior = dice.Prior.from_anndata(reference)
    extra = extra_memory(lambda: dice.tl.denoise(query, prior, method=dice.Direct(uncertainty=False)))
    row = {"cells": n_cells, "latents": n_latent, "extra MB": extra}
    row["seconds"] = timed(lambda: dice.tl.denoise(query, prior, method=dice.Direct(uncertainty=False)))
    row["of which network"] = timed(lambda: denoise_chunks(prior, query.obsm["X_dice_pca"]))
    row["µs per cell"] = row["seconds"] / n_cells * 1e6
    if samples:
        row[f"seconds, {N_STEPS} steps of training"] = training
        row["seconds, 10 samples"] = timed(
            lambda: dice.tl.denoise(query, prior, n_samples=10, method=dice.Direct(uncertainty=False)), repeats=1
        )
    return row


@torch.no_grad()
def denoise_chunks(prior: dice.Prior, latents: np.ndarray, size: int = 8192) -> None:
    """The network's part of the direct mean alone."""
    for start in range(0, len(latents), size):
        prior.denoise(torch.as_tensor(latents[start : start + size]), 2.0)


def apart(sizes: list[tuple[int, int, bool]]) -> pd.DataFrame:
    """`measure`, each time in a process of its own, so that no run has the memory of another."""
    command = [sys.executable, __file__, "--measure"]
    runs = [
        subprocess.run([*command, json.dumps(size)], stdout=subprocess.PIPE, text=True, check=True) for size in sizes
    ]
    return pd.DataFrame([json.loads(run.stdout.splitlines()[-1]) for run in runs])


def matrix_product_share() -> pd.DataFrame:
    """Share of the default network's sampler in matrix products, by the profiler."""
    reference, _ = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    denoiser = dice.Prior.from_anndata(reference).denoiser
    y = torch.randn(8192, 15)
    noise = CellNoise(torch.as_tensor(cell_seeds(map(str, range(len(y))), 0)))
    # One thread: with more, waiting for each other would be booked as time in the operations.
    torch.set_num_threads(1)
    with torch.no_grad():
        sample_sde(denoiser, y, torch.tensor(1.0), noise)
        with profile(activities=[ProfilerActivity.CPU]) as record:
            sample_sde(denoiser, y, torch.tensor(1.0), noise)
    events = record.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    # addmm includes the copy of the bias that it starts from.
    products = sum(event.cpu_time_total for event in events if event.key in {"aten::addmm", "aten::mm"})
    return pd.DataFrame({"cells": [len(y)], "share in matrix products": [products / total]})


SECONDS = (
    "Fastest of three calls, one process for each row; means alone (`uncertainty=False`), the shift as by default."
)
#: Title, what the reader should know, and the measurement.
PARTS: dict[str, tuple[str, str, Callable[[argparse.Namespace], pd.DataFrame]]] = {
    "literal": (
        "The direct posterior against the literal sampler",
        "The paper's small network; the literal time is extrapolated from its last iteration.",
        lambda arguments: against_the_literal_sampler(arguments.cells),
    ),
    "evaluations": (
        "Evaluations of the network",
        "Counted on random cells, except for the last row, which follows from the printed schedule. What the shift "
        "takes depends on how far the query is from its reference.",
        lambda arguments: evaluations(),
    ),
    "cells": (
        "Cost against cells",
        f"{N_GENES} genes, 5 % non-zero, 25 latents. {SECONDS}",
        lambda arguments: apart([(n, 25, False) for n in CELLS if n <= arguments.max_cells]),
    ),
    "latents": (
        "Cost against latents",
        f"{N_GENES} genes, 5 % non-zero; a reference of 2,000 cells. {SECONDS}",
        lambda arguments: apart([(min(10_000, arguments.max_cells), k, True) for k in LATENTS]),
    ),
    "products": ("Matrix products", "Default network, 15 latents.", lambda arguments: matrix_product_share()),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--cells", type=int, default=1000, help="cells of the comparison with the literal sampler")
    parser.add_argument("--max-cells", type=int, default=CELLS[-1], help="cells of the largest query")
    parser.add_argument("--measure", type=json.loads, help="one measurement [cells, latents, samples], as JSON")
    arguments = parser.parse_args()
    prepare()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    for name in arguments.only:
        title, note, part = PARTS[name]
        table = part(arguments).round(4)
        print(f"{title}\n{table.to_string(index=False)}\n", flush=True)
        save(f"speed_{name}", title, table, {title: table}, note)


if __name__ == "__main__":
    main()
