"""The figures of docs/differences.md: the paper's setups by PCA, the learned and the exact posterior.

python benchmarks/differences.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import torch
from report import OUT, prepare

import dice
from dice.metrics import clisi, silhouette

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from oracle import exact_mixture


def scores(setup: int) -> list[dict[str, object]]:
    """Silhouette and cLISI of one setup's query, seed 0."""
    reference, query = dice.datasets.synthetic(setup)
    dice.tl.train_prior(reference, n_latent="elbow", scale=False)
    exact = exact_mixture(reference, dice.Prior.from_anndata(reference))
    embeddings = {}
    for rho in (30, 60):
        dice.tl.denoise(query, reference, rho=rho)
        y = torch.as_tensor(query.obsm["X_dice_pca"]).double()
        level = torch.as_tensor(np.hypot(query.uns["X_dice"]["params"]["noise"], rho))
        embeddings["PCA"] = query.obsm["X_dice_pca"]
        embeddings["PCA, each component standardised"] = embeddings["PCA"] / reference.obsm["X_dice_pca"].std(0)
        embeddings[f"network, rho {rho}"] = query.obsm["X_dice"]
        embeddings[f"exact posterior, rho {rho}"] = exact(y, level).numpy()
    embeddings |= standardised(reference.copy(), query.copy(), 60 / reference.uns["dice"]["latent_scale"])
    labels = query.obs["cell_type"]
    return [
        {"setup": setup, "embedding": name, "silhouette": silhouette(x, labels), "cLISI": clisi(x, labels)}
        for name, x in embeddings.items()
    ]


def standardised(reference: ad.AnnData, query: ad.AnnData, share: float) -> dict[str, np.ndarray]:
    """Embeddings with standardised genes and 25 latents, as the authors' configuration for CITE-seq has them.

    rho is the same share of the latents' scale as without standardised genes.
    """
    dice.tl.train_prior(reference, n_latent=25, scale=True)
    dice.tl.denoise(query, reference, rho=share * reference.uns["dice"]["latent_scale"])
    name = "25 latents, genes standardised"
    return {f"PCA, {name}": query.obsm["X_dice_pca"], f"network, {name}": query.obsm["X_dice"]}


def main() -> None:
    prepare()
    table = pd.DataFrame([row for setup in (1, 2, 3, 4) for row in scores(setup)])
    OUT.mkdir(parents=True, exist_ok=True)
    table.round(4).to_csv(OUT / "differences.csv", index=False)
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
