"""Which augmentation should label-free training use, and how much should the prior pull?

A prior is learned without labels on reference cells: as they are (``none``), mixed within fine Leiden clusters, or
among nearest neighbours. Held-out cells are denoised at several rho (in units of the latent scale) and clustered, once
on the posterior mean and once on the graph averaged over ten posterior samples. Labels only score:

* ``ari``, ``nmi``          best over the paper's 39 resolutions; with ``_1`` at the default resolution,
* ``clisi``                 of the posterior mean,
* ``logreg``, ``logreg_f1`` accuracy and macro-F1 of a logistic regression from denoised reference to denoised query.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 .venv/bin/python benchmarks/augment.py

writes docs/benchmarks/augment.csv and .md. Data are looked for in DICE_DATA (default ../shared/data).
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
from data import pair
from report import publish
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

import dice

DATA = ("bmmc", "teaseq", "liu", "pancreas")
STRATEGIES = (None, "clusters", "neighbors")
RHO = (0.5, 1.0, 2.0)


def sweep(cells: object, truth: np.ndarray, prefix: str = "") -> dict[str, float]:
    """Best and default-resolution agreement of Leiden clusters with the labels."""
    table = dice.metrics.leiden_sweep(cells, truth)
    default = table[table.resolution == 1.0].iloc[0]
    found = {"ari": table.ari.max(), "nmi": table.nmi.max(), "ari_1": default.ari, "nmi_1": default.nmi}
    return {prefix + name: float(value) for name, value in found.items()}


def run(name: str, seed: int) -> Iterator[dict[str, object]]:
    reference, query = pair(name, seed)
    known, truth = (a.obs["cell_type"].astype(str).to_numpy() for a in (reference, query))
    for strategy in STRATEGIES:
        dice.tl.train_prior(reference, augment=strategy, random_state=seed)
        scale = reference.uns["dice"]["latent_scale"]
        if strategy is None:
            projected = dice.tl.denoise(query, reference, copy=True).obsm["X_dice_pca"]
            row = {"data": name, "seed": seed, "augment": "PCA", "rho": 0.0} | sweep(projected, truth)
            yield row | transfer(reference.obsm["X_dice_pca"], projected, known, truth)
        for rho in RHO:
            dice.tl.denoise(query, reference, rho=rho * scale, n_samples=10, random_state=seed)
            dice.tl.denoise(reference, rho=rho * scale, uncertainty=False)
            dice.tl.neighbors(query)
            mean = query.obsm["X_dice"]
            row = {"data": name, "seed": seed, "augment": strategy or "none", "rho": rho}
            row |= sweep(mean, truth) | sweep(query.obsp["dice_neighbors_connectivities"], truth, "graph_")
            yield row | transfer(reference.obsm["X_dice"], mean, known, truth)


def transfer(train: np.ndarray, test: np.ndarray, known: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    guess = LogisticRegression(max_iter=200).fit(train / train.std(), known).predict(test / train.std())
    return {
        "clisi": dice.metrics.clisi(test, truth),
        "logreg": float(np.mean(guess == truth)),
        "logreg_f1": f1_score(truth, guess, average="macro"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare label-free augmentations on held-out cells.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=DATA)
    arguments = parser.parse_args()
    dice.settings.verbosity = 0
    warnings.filterwarnings("ignore")  # convergence of the regression; 200 iterations are enough
    rows: list[dict[str, object]] = []
    for seed, name in itertools.product(range(arguments.seeds), arguments.data):
        for row in run(name, seed):
            print({key: round(x, 3) if isinstance(x, float) else x for key, x in row.items()}, flush=True)
            rows.append(row)
        publish("augment", pd.DataFrame(rows), by=["augment", "rho"], title="Augmentation without labels")


if __name__ == "__main__":
    main()
