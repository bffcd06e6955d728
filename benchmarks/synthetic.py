"""The paper's synthetic experiments, beside the posterior that can be computed exactly.

Setups 1-4: the query is denoised by the default network, by a Gaussian mixture fitted to the reference, and by the
true mixture, at fixed rho and at two rho that no labels chose: ``auto`` (predicts held-out genes best) and ``scale``
(the prior's latent scale). Sharpness stands beside faithfulness:

* ``silhouette`` (cosine) and ``clisi`` (harmonypy, perplexity 30) against the true clusters,
* ``to_truth``   root mean square distance to the true latents, relative to that of plain PCA,
* ``to_exact``   the same to the exact posterior mean at equal rho, relative to the distance between PCA and it.

Cluster mismatch: how much of the query, whose cells are all of one known or one new cluster, ends nearest to its own
cluster. ``--literal N`` adds Algorithm 1 as printed (paper's network, 200 iterations, ten chains, rho 20) on N cells of
the first seed of Setup 1.

    make bench-synthetic

writes docs/benchmarks/synthetic.csv and .md, mismatch.csv and .md, and figures beside them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import torch
from report import OUT, publish

import dice

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracle import exact_mixture

RHOS = (5, 10, 20, 30, 60, 100)
#: What the paper prints for Setups 1-4: silhouette and cLISI of PCA and of DICE.
PRINTED = {
    "PCA": [(0.25, 1.27), (0.24, 1.27), (0.22, 1.32), (0.22, 1.35)],
    "DICE": [(0.37, 1.17), (0.36, 1.17), (0.34, 1.18), (0.28, 1.27)],
}
MISMATCH = {"fewer": (1.0, 8.0, 20.0), "more": (0.5, 2.0, 4.0)}


def learn(reference: ad.AnnData, preset: str, seed: int) -> ad.AnnData:
    """A prior of all reference cells, as in the paper."""
    learned = reference.copy()
    options = {"augment": None, "calibration_fraction": 0.0, "n_latent": "elbow", "scale": False, "preset": preset}
    dice.tl.train_prior(learned, random_state=seed, **options)
    return learned


def truth_in(prior: dice.Prior, query: ad.AnnData) -> np.ndarray:
    """The true latents of a query in the coordinates of the prior."""
    loadings = prior.projection.loadings.astype(np.float64)
    return query.obsm["U_true"] @ query.varm["V_true"].T @ loadings - loadings.T @ prior.projection.mean


def distance(found: np.ndarray, wanted: np.ndarray, start: np.ndarray) -> float:
    return float(np.sqrt(np.square(found - wanted).mean() / np.square(start - wanted).mean()))


def run(setup: int, seed: int, priors: dict[str, ad.AnnData]) -> Iterator[dict[str, object]]:
    """Rows of one query."""
    _, query = dice.datasets.synthetic(setup, random_state=seed)
    labels = query.obs["cell_type"]
    prior = dice.Prior.from_anndata(priors["DICE"])
    exact = exact_mixture(priors["DICE"], prior)
    start = prior.projection.project(query.X)
    wanted = truth_in(prior, query)

    def row(method: str, rho: object, cells: np.ndarray, level: float | None = None) -> dict[str, object]:
        sharp = {"silhouette": dice.metrics.silhouette(cells, labels), "clisi": dice.metrics.clisi(cells, labels)}
        found = {"method": method, "rho": str(rho), **sharp, "to_truth": distance(cells, wanted, start)}
        if level is not None:
            found["to_exact"] = distance(cells, posterior(level), start)
        return found

    def posterior(level: float) -> np.ndarray:
        return exact(torch.as_tensor(start, dtype=torch.float64), torch.tensor(level)).numpy()

    yield row("PCA", "-", start)
    tunings = {"auto": "auto", "scale": prior.latent_scale, **{str(rho): float(rho) for rho in RHOS}}
    for name, rho in tunings.items():
        for method, reference in priors.items():
            dice.tl.denoise(query, reference, rho=rho, uncertainty=False)
            params = query.uns["X_dice"]["params"]
            level = float(np.hypot(params["rho"], params["noise"]))
            yield row(method, name, query.obsm["X_dice"], level) | {"used_rho": params["rho"]}
            if method == "DICE":
                yield row("exact", name, posterior(level)) | {"used_rho": params["rho"]}


def mismatch(kind: str, seed: int) -> Iterator[dict[str, object]]:
    """Where cells of one cluster end: share whose nearest centre is their own."""
    reference, query = dice.datasets.mismatch(kind, random_state=seed)
    learned = learn(reference, "default", seed)
    prior = dice.Prior.from_anndata(learned)
    loadings = prior.projection.loadings.astype(np.float64)
    centres = [np.asarray(a.uns["dice_synthetic"]["means"]) for a in (reference, query)]
    places = [c @ query.varm["V_true"].T @ loadings - loadings.T @ prior.projection.mean for c in centres]
    centre = places[0] if kind == "fewer" else np.concatenate([places[0], places[1][-1:]])
    own = 0 if kind == "fewer" else len(centre) - 1
    for rho in MISMATCH[kind]:
        # The paper runs 200 iterations without averaging, which is one posterior sample.
        dice.tl.denoise(query, learned, rho=rho, n_samples=1, calibrate=False, random_state=seed)
        sample = query.obsm["X_dice_samples"][:, 0]
        nearest = np.linalg.norm(sample[:, None] - centre, axis=2).argmin(1)
        shares = np.bincount(nearest, minlength=len(centre)) / len(nearest)
        others = np.delete(shares, own).max()
        yield {"data": kind, "seed": seed, "rho": rho, "own": shares[own], "largest_other": others}


def literal(n_cells: int) -> dict[str, object]:
    """Algorithm 1 as printed on a few cells: distance of the mean of its chains to the exact posterior."""
    reference, query = dice.datasets.synthetic(1)
    learned = learn(reference, "paper-small", 0)
    prior = dice.Prior.from_anndata(learned)
    few = query[:n_cells].copy()
    options = {"method": "gibbs", "rho": 20.0, "n_iterations": 200, "n_chains": 10, "average": "chains", "noise": 1.0}
    dice.tl.denoise(few, learned, calibrate=False, uncertainty=False, **options)
    start = torch.as_tensor(prior.projection.project(few.X), dtype=torch.float64)
    wanted = exact_mixture(learned, prior)(start, torch.tensor(float(np.hypot(20.0, 1.0)))).numpy()
    one = dice.tl.denoise(few, learned, rho=20.0, noise=1.0, calibrate=False, uncertainty=False, copy=True)
    return {
        "cells": n_cells,
        "literal": distance(few.obsm["X_dice"], wanted, start.numpy()),
        "one evaluation": distance(one.obsm["X_dice"], wanted, start.numpy()),
    }


def draw(rows: pd.DataFrame) -> None:
    """Sharpness and faithfulness along rho."""
    import matplotlib.pyplot as plt

    figures = ("silhouette", "clisi", "to_truth", "to_exact")
    figure, axes = plt.subplots(1, 4, figsize=(13, 3), layout="constrained")
    fixed = rows[rows.rho.isin([str(rho) for rho in RHOS]) & (rows.data == "Setup 1")]
    fixed = fixed.assign(rho=fixed.rho.astype(float))
    for ax, name in zip(axes, figures, strict=True):
        for method, part in fixed.groupby("method", sort=False):
            mean = part.groupby("rho")[name].mean().dropna()
            if len(mean):
                ax.plot(mean.index, mean, marker="o", markersize=4, label=method)
        if name in ("silhouette", "clisi"):
            ax.axhline(rows[(rows.method == "PCA") & (rows.data == "Setup 1")][name].mean(), color="0.6", label="PCA")
        ax.set(xscale="log", xlabel="rho", title=name)
    axes[0].legend(frameon=False)
    figure.savefig(OUT / "synthetic_rho.png", dpi=80)
    plt.close(figure)


def note(extra: list[str]) -> str:
    lines = ["| paper, printed | Setup 1 | Setup 2 | Setup 3 | Setup 4 |", "|---|---|---|---|---|"]
    lines += [
        f"| {m} silhouette / cLISI | " + " | ".join(f"{s} / {c}" for s, c in v) + " |" for m, v in PRINTED.items()
    ]
    return "\n\n".join(["\n".join(lines), *extra, "![Setup 1 along rho](synthetic_rho.png)"])


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's synthetic experiments.")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--literal", type=int, default=0, metavar="CELLS")
    arguments = parser.parse_args()
    dice.settings.verbosity = 0
    rows: list[dict[str, object]] = []
    others: list[dict[str, object]] = []
    extra = []
    if arguments.literal:
        found = literal(arguments.literal)
        extra.append(
            f"Algorithm 1 as printed (paper-small network, 200 iterations, 10 chains, rho 20), {found['cells']} cells "
            f"of Setup 1, seed 0: distance to the exact posterior {found['literal']:.3f}; one evaluation of the same "
            f"network {found['one evaluation']:.3f}."
        )
    for seed in range(arguments.seeds):
        reference, _ = dice.datasets.synthetic(1, random_state=seed)
        priors = {"DICE": learn(reference, "default", seed), "GMM": learn(reference, "gmm", seed)}
        for setup in range(1, 5):
            rows += [{"data": f"Setup {setup}", "seed": seed, **row} for row in run(setup, seed, priors)]
        others += [row for kind in MISMATCH for row in mismatch(kind, seed)]
        table = pd.DataFrame(rows)
        OUT.mkdir(exist_ok=True)
        draw(table)
        publish("synthetic", table, by=["method", "rho"], title="Setups 1-4", note=note(extra))
        publish("mismatch", pd.DataFrame(others), by=["rho"], title="Clusters that do not match")
        print(f"seed {seed} done", flush=True)


if __name__ == "__main__":
    main()
