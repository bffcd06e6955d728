"""How fast a prior is learned, and how near the exact posterior it comes.

    OMP_NUM_THREADS=2 .venv/bin/python benchmarks/train.py            # time and held-out loss by steps
    OMP_NUM_THREADS=2 .venv/bin/python benchmarks/train.py --oracle   # Setups 1-4, five seeds

Without arguments: seconds and held-out loss (relative to the best linear denoiser) against steps for ``default``,
``paper-small`` and ``gmm`` on bmmc (4,000 cells x 3,000 genes -> 25 latents; DICE_DATA, default ../shared/data) and on
synthetic cells (Setup 1). With ``--oracle``: root mean square distance of the one-evaluation embedding to the exact
posterior mean, relative to the distance between the projection and it. Tables are printed as Markdown.

Where other programs run at the same time, set NUMBA_NUM_THREADS as well: scanpy's compiled functions raise the number
of threads that torch uses to their own, and waiting threads then cost more than they bring.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import anndata as ad
import numpy as np
import torch
from data import find
from report import prepare

import dice
from dice._data.matrix import Matrix
from dice._model import networks, training_data
from dice._model.pca import fit_projection
from dice._model.training import make_trainer

ROOT = Path(__file__).resolve().parents[1]


def bmmc() -> tuple[np.ndarray, bool]:
    """4,000 random cells, 3,000 highly variable genes."""
    import scanpy as sc

    adata = ad.read_h5ad(find("bmmc_neurips_cite"))
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    cells = np.random.default_rng(0).permutation(adata.n_obs)[:4000]
    adata = adata[cells].copy()
    sc.pp.highly_variable_genes(adata, n_top_genes=3000)
    return adata[:, adata.var["highly_variable"]].X, True


def synthetic() -> tuple[np.ndarray, bool]:
    return dice.datasets.synthetic(1)[0].X, False


def speed(name: str, preset: str, max_steps: int | None) -> None:
    """Train once and print the course."""
    matrix, scale = {"bmmc": bmmc, "synthetic": synthetic}[name]()
    start = time.perf_counter()
    projection = fit_projection(Matrix(ad.AnnData(matrix)).total, n_latent=25 if name == "bmmc" else 15, scale=scale)
    latents = projection.project(matrix)
    data = training_data.plain_data(latents, training_data.assign_roles(len(latents), 0.1, 0, 0), torch.device("cpu"))
    print(f"\n### {name}, {preset}: PCA in {time.perf_counter() - start:.1f} s\n")
    print("| step | seconds | CPU s | held-out loss |\n|---|---|---|---|")
    start, cpu = time.perf_counter(), time.process_time()
    if preset == "gmm":
        denoiser, _ = networks.by_preset()["gmm"][0].fit(data.train, data.held_out, 0)
        trainer = make_trainer("default", data, noise=projection.noise / data.scale)
        loss = trainer.held_out.loss(denoiser)
        spent = f"{time.perf_counter() - start:.1f} | {time.process_time() - cpu:.1f}"
        print(f"| {denoiser.n_components} components | {spent} | {loss:.4f} |")
        return
    trainer = make_trainer(preset, data, noise=projection.noise / data.scale, max_steps=max_steps)
    course = [
        (step, time.perf_counter() - start, time.process_time() - cpu, trainer.history[-1][2])
        for step in trainer.steps()
        if trainer.history and trainer.history[-1][0] == step
    ]
    best = min(row[3] for row in course)
    within = next(row for row in course if row[3] <= 1.01 * best)
    every = max(len(course) // 12, 1)
    for step, seconds, spent, loss in [*course[::every], course[-1]]:
        print(f"| {step} | {seconds:.1f} | {spent:.1f} | {loss:.4f} |")
    step, seconds, spent, _ = within
    print(f"\nBest {best:.4f}; within 1 % of it at step {step} after {seconds:.1f} s ({spent:.1f} s of CPU time).")


def oracle(seeds: int, rhos: tuple[float, ...] = (20, 30, 60)) -> None:
    """Setups 1-4: one reference for all of them per seed, and a query for each."""
    sys.path.append(str(ROOT / "tests"))
    from oracle import exact_mixture

    errors = np.empty((seeds, 4, len(rhos)))
    for seed in range(seeds):
        reference, _ = dice.datasets.synthetic(1, random_state=seed)
        dice.tl.train_prior(reference, n_latent="elbow", scale=False, random_state=seed)
        prior = dice.Prior.from_anndata(reference)
        exact = exact_mixture(reference, prior)
        for setup in range(4):
            _, query = dice.datasets.synthetic(setup + 1, random_state=seed)
            y = torch.as_tensor(prior.projection.project(query.X))
            noise = 10**0.5 if setup in (1, 3) else 1.0
            for i, rho in enumerate(rhos):
                s = torch.as_tensor(np.hypot(noise, rho), dtype=torch.float32)
                target = exact(y.double(), s.double())
                error = (prior.denoise(y, s) - target).square().mean().sqrt()
                errors[seed, setup, i] = error / (y - target).square().mean().sqrt()
        print(f"seed {seed}: worst of the setups {errors[seed].max(0).round(3)}", file=sys.stderr, flush=True)
    print("| setup | " + " | ".join(f"rho = {rho:g}" for rho in rhos) + " |\n|---|" + "---|" * len(rhos))
    for setup in range(4):
        cells = (f"{e.mean():.3f} ({e.min():.3f}-{e.max():.3f})" for e in errors[:, setup].T)
        print(f"| {setup + 1} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and quality of learning a prior.")
    parser.add_argument("--oracle", action="store_true", help="distance to the exact posterior on Setups 1-4")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", nargs="*", default=["bmmc", "synthetic"], choices=["bmmc", "synthetic"])
    parser.add_argument("--presets", nargs="*", default=["default", "paper-small", "gmm"])
    parser.add_argument("--max-steps", type=int, help="shorten the trained presets")
    arguments = parser.parse_args()
    prepare()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    if arguments.oracle:
        oracle(arguments.seeds)
        return
    for name in arguments.data:
        for preset in arguments.presets:
            speed(name, preset, arguments.max_steps)


if __name__ == "__main__":
    main()
