"""Queries that lack genes: unobserved against filled with zeros.

    python benchmarks/missing_genes.py [--seeds 2]

Drops 10, 30, 50 and 70 % of the genes of 500 held-out bmmc cells; the prior is trained with labels. Error is the RMSE
to the embedding from all genes, relative to that embedding's standard deviation; accuracy is that of logistic
regression trained on the reference.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from data import hold_out, load, variable_genes
from report import OUT, prepare
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dice

#: Hardly more than the measured noise of about 0.9: what serves label transfer, unlike clustering, best.
RHO = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    prepare()
    rows = [row for seed in range(arguments.seeds) for row in run(seed)]
    table = pd.DataFrame(rows).groupby(["dropped", "method"], sort=False).mean().drop(columns="seed")
    OUT.mkdir(parents=True, exist_ok=True)
    table.round(4).to_csv(OUT / "missing_genes.csv")
    print(table.round(3).to_string())


def run(seed: int) -> list[dict[str, object]]:
    reference, query = hold_out(load("bmmc_neurips_cite"), 500, seed)
    reference = variable_genes(reference)
    query = query[:, reference.var_names].copy()
    dice.tl.train_prior(reference, n_latent=25, labels_key="cell_type", random_state=seed)
    dice.tl.denoise(reference, rho=RHO)
    dice.tl.denoise(query, reference, rho=RHO)
    full = query.obsm["X_dice"]
    classify = {
        key: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)) for key in ("X_dice", "X_dice_pca")
    }
    for key, classifier in classify.items():
        classifier.fit(reference.obsm[key], reference.obs["cell_type"])
    rows = []
    for dropped in (0.1, 0.3, 0.5, 0.7):
        keep = np.random.default_rng(seed).random(query.n_vars) >= dropped
        zeros = query.copy()
        zeros.X = query.X.multiply(keep).tocsr()
        dice.tl.denoise(zeros, reference, rho=RHO, check=False)
        part = query[:, keep].copy()
        dice.tl.denoise(part, reference, rho=RHO, check=False)
        methods = {
            "PCA, zeros": (zeros.obsm["X_dice_pca"], "X_dice_pca"),
            "DICE, zeros": (zeros.obsm["X_dice"], "X_dice"),
            "DICE, unobserved": (part.obsm["X_dice"], "X_dice"),
        }
        for method, (embedding, key) in methods.items():
            target = full if key == "X_dice" else query.obsm["X_dice_pca"]
            error = np.sqrt(((embedding - target) ** 2).mean()) / target.std()
            accuracy = (classify[key].predict(embedding) == query.obs["cell_type"]).mean()
            rows.append({"dropped": dropped, "method": method, "error": error, "accuracy": accuracy, "seed": seed})
    return rows


if __name__ == "__main__":
    main()
