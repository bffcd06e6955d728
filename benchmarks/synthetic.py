"""The paper's synthetic experiments, beside the posterior that can be computed exactly.

Setups 1-4: the query is denoised by the default network, by a Gaussian mixture fitted to the reference, and by the
true mixture, at fixed rho and at two rho that no labels chose: ``auto`` (the default, half of the prior's latent scale
where noise is assumed) and ``scale`` (all of it). Sharpness stands beside faithfulness:

* ``silhouette`` (cosine) and ``clisi`` (harmonypy, perplexity 30) against the true clusters,
* ``to_truth``   root mean square distance to the true latents, relative to that of plain PCA,
* ``to_exact``   the same to the exact posterior mean at equal rho, relative to the distance between PCA and it.

``--literal N`` adds Algorithm 1 as printed (paper's network, 200 iterations, ten chains, rho 20) on N cells of the
first seed of Setup 1.

Cluster mismatch: how much of the query, whose cells are all of one known or one new cluster, ends nearest to its own
cluster.

Ablation of k on Setup 1, whose cells have 15 latents. Its ``to_truth`` and ``to_exact`` are relative to PCA with the
same k; ``gene_error``, the root mean square error of the expression that the embedding stands for, compares different k
(the noise of a gene is 1).

    make bench-synthetic [ARGS="--only setups mismatch k --seeds 10"]

writes docs/benchmarks/synthetic.csv and .md, mismatch.csv and .md, ablation_k.csv and .md, and figures beside them,
seed by seed, and goes on where an earlier run stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import torch
from report import OUT, prepare, publish, resume
from synthetic_pages import LITERAL, RHOS, about_k, about_setups
from trial import some

import dice

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from oracle import exact_mixture

KS = (5, 10, 15, 20, 25, 50, 100, 200)
MISMATCH = {"fewer": (1.0, 8.0, 20.0), "more": (0.5, 2.0, 4.0)}


def learn(reference: ad.AnnData, preset: str, seed: int, n_latent: int | str = "elbow") -> ad.AnnData:
    """A prior of all reference cells, as in the paper."""
    learned = reference.copy()
    options = {"mixup": None, "training": dice.Training(calibration_fraction=0.0), "scale": False}
    dice.tl.train_prior(learned, n_latent=n_latent, preset=preset, random_state=seed, **options)
    return learned


def truth_in(prior: dice.Prior, query: ad.AnnData) -> np.ndarray:
    """The true latents of a query in the coordinates of the prior."""
    loadings = prior.projection.loadings.astype(np.float64)
    return query.obsm["U_true"] @ query.varm["V_true"].T @ loadings - loadings.T @ prior.projection.mean


def distance(found: np.ndarray, wanted: np.ndarray, start: np.ndarray) -> float:
    return float(np.sqrt(np.square(found - wanted).mean() / np.square(start - wanted).mean()))


class Judge:
    """Figures of embeddings of one query in the coordinates of a prior."""

    def __init__(self, reference: ad.AnnData, query: ad.AnnData) -> None:
        self.prior = dice.Prior.from_anndata(reference)
        self.labels = query.obs["cell_type"]
        self.start = self.prior.projection.project(query.X)
        self.wanted = truth_in(self.prior, query)
        self.expression = query.obsm["U_true"] @ query.varm["V_true"].T
        self._exact = exact_mixture(reference, self.prior)

    def exact(self, level: float) -> np.ndarray:
        """The exact posterior mean of cells seen through noise of `level`."""
        return self._exact(torch.as_tensor(self.start, dtype=torch.float64), torch.tensor(level)).numpy()

    def row(self, method: str, rho: object, cells: np.ndarray, level: float | None = None) -> dict[str, object]:
        sharp = {"silhouette": dice.metrics.silhouette(cells, self.labels)}
        sharp["clisi"] = dice.metrics.clisi(cells, self.labels)
        found = {"method": method, "rho": str(rho), **sharp, "to_truth": distance(cells, self.wanted, self.start)}
        if level is not None:
            found["to_exact"] = distance(cells, self.exact(level), self.start)
        return found

    def gene_error(self, cells: np.ndarray) -> float:
        projection = self.prior.projection
        expression = cells @ projection.loadings.T + projection.mean
        return float(np.sqrt(np.square(expression - self.expression).mean()))


def denoise(query: ad.AnnData, reference: ad.AnnData, rho: object) -> tuple[np.ndarray, float, float]:
    """The direct mean, the rho that was used, and the whole noise that was assumed."""
    dice.tl.denoise(query, reference, rho=rho, method=dice.Direct(uncertainty=False), shift=False)
    params = query.uns["X_dice"]["params"]
    return query.obsm["X_dice"], params["rho"], float(np.hypot(params["rho"], params["noise"]))


def setups(seed: int) -> Iterator[dict[str, object]]:
    """Rows of the four queries of a seed, which share their reference."""
    reference, _ = dice.datasets.synthetic(1, random_state=seed)
    priors = {"DICE": learn(reference, "default", seed), "GMM": learn(reference, "gmm", seed)}
    for setup in some((1, 2, 3, 4)):
        _, query = dice.datasets.synthetic(setup, random_state=seed)
        judge = Judge(priors["DICE"], query)
        about = {"data": f"Setup {setup}", "seed": seed}
        yield about | judge.row("PCA", "-", judge.start)
        tunings = {"auto": "auto", "scale": judge.prior.latent_scale, **{str(rho): float(rho) for rho in some(RHOS)}}
        for name, rho in tunings.items():
            for method, learned in priors.items():
                cells, used, level = denoise(query, learned, rho)
                yield about | judge.row(method, name, cells, level) | {"used_rho": used}
                if method == "DICE":
                    yield about | judge.row("exact", name, judge.exact(level)) | {"used_rho": used}


def latents(seed: int) -> Iterator[dict[str, object]]:
    """Rows of one query of Setup 1 with priors of more and more latents."""
    reference, query = dice.datasets.synthetic(1, random_state=seed)
    for k in some(KS):
        learned = learn(reference, "default", seed, n_latent=k)
        judge = Judge(learned, query)
        about = {"data": "Setup 1", "seed": seed, "k": k}
        yield about | judge.row("PCA", "-", judge.start) | {"gene_error": judge.gene_error(judge.start)}
        for name, rho in {"scale": judge.prior.latent_scale, "30": 30.0}.items():
            cells, used, level = denoise(query, learned, rho)
            exact = judge.exact(level)
            for method, found, noise in (("DICE", cells, level), ("exact", exact, None)):
                extra = {"used_rho": used, "gene_error": judge.gene_error(found)}
                yield about | judge.row(method, name, found, noise) | extra


def mismatch(seed: int) -> Iterator[dict[str, object]]:
    for kind in MISMATCH:
        yield from mismatched(kind, seed)


def mismatched(kind: str, seed: int) -> Iterator[dict[str, object]]:
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
        dice.tl.denoise(query, learned, rho=rho, n_samples=1, random_state=seed, shift=False)
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
    options = {"rho": 20.0, "likelihood": dice.Gaussian(1.0), "shift": False}
    chains = dice.Gibbs(n_iterations=200, n_chains=10, average="chains")
    dice.tl.denoise(few, learned, method=chains, **options)
    start = torch.as_tensor(prior.projection.project(few.X), dtype=torch.float64)
    wanted = exact_mixture(learned, prior)(start, torch.tensor(float(np.hypot(20.0, 1.0)))).numpy()
    one = dice.tl.denoise(few, learned, method=dice.Direct(uncertainty=False), copy=True, **options)
    return {
        "cells": n_cells,
        "literal": distance(few.obsm["X_dice"], wanted, start.numpy()),
        "direct": distance(one.obsm["X_dice"], wanted, start.numpy()),
    }


@dataclass(frozen=True)
class Part:
    """An experiment: its files, what is compared, the rows of a seed, and what the reader should know."""

    file: str
    title: str
    by: list[str]
    rows: Callable[[int], Iterator[dict[str, object]]]
    note: Callable[[pd.DataFrame], str] = lambda rows: ""


PARTS = {
    "setups": Part("synthetic", "Setups 1-4", ["method", "rho"], setups, about_setups),
    "mismatch": Part("mismatch", "Clusters that do not match", ["rho"], mismatch),
    "k": Part("ablation_k", "Number of latents", ["k", "method", "rho"], latents, about_k),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's synthetic experiments.")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="some of the experiments")
    parser.add_argument("--literal", type=int, default=0, metavar="CELLS")
    arguments = parser.parse_args()
    prepare()
    OUT.mkdir(parents=True, exist_ok=True)
    if arguments.literal and "setups" in arguments.only and not LITERAL.exists():
        pd.DataFrame([literal(arguments.literal)]).round(5).to_csv(LITERAL, index=False)
    for seed in range(arguments.seeds):
        for part in (PARTS[name] for name in arguments.only):
            rows, done = resume(part.file, ["seed"])
            if (seed,) in done:
                continue
            table = pd.DataFrame([*rows, *part.rows(seed)])
            publish(part.file, table, by=part.by, title=part.title, note=part.note(table))
            print(f"{part.title}: seed {seed} done", flush=True)


if __name__ == "__main__":
    main()
