"""The whole sets of clusters.py by other tools, at their own defaults and without labels.

    python benchmarks/clusters_peers.py [--methods PCA PhenoGraph Harmony scVI] [--seeds 3] [--data ...]

The cells and variable genes are those of clusters.py, whose page shows docs/benchmarks/clusters_peers.csv. Leiden on 50
principal components, and on the embeddings of Harmony and scVI, has its default resolution 1; PhenoGraph chooses for
itself. Harmony and scVI are given the column ``batch``. scVI trains for its default of epochs, 400 for so few cells.
``agreement`` compares the clusters of two halves of the counts, each by the whole method; scVI takes minutes and is run
once. It is not run on the three chemistries, whose counts are not published. ``seconds`` are those of embedding and
clusters.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import anndata as ad
import numpy as np
import scanpy as sc
from clusters import WHOLE, at_default, halved, phenograph, scores, whole
from peers import installed, quietly
from report import OUT, extend, prepare
from sklearn.metrics import adjusted_rand_score

N_PCS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=[m for m in METHODS if m != "scVI"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", nargs="*", choices=list(WHOLE), default=list(WHOLE))
    arguments = parser.parse_args()
    prepare()
    at_default(np.random.default_rng(0).normal(size=(100, 2)), 0)  # compiles what would else be part of the first row
    for method in installed(arguments.methods):
        names = arguments.data
        if method == "scVI":
            names = [name for name in names if "counts" in whole(name, 0).layers]
        extend(OUT / "clusters_peers.csv", METHODS[method][0], names, arguments.seeds, partial(run, method=method))


def run(name: str, seed: int, method: str) -> dict[str, float]:
    """Clusters of a set against its types, and against each other where they are of halves of the counts."""
    _, embed, cluster = METHODS[method]
    cells, start = whole(name, seed), time.perf_counter()
    clusters = cluster(quietly(embed, cells, seed), seed)
    row = scores(cells.obs["cell_type"].astype(str).to_numpy(), clusters)
    row |= {"n_clusters": len(np.unique(clusters)), "seconds": time.perf_counter() - start}
    if method == "scVI":
        return row | {"agreement": np.nan}
    both = []
    for half in halved(cells, seed):
        both.append(cluster(quietly(embed, half, seed), seed))
    return row | {"agreement": adjusted_rand_score(*both)}


def pca(cells: ad.AnnData, seed: int) -> np.ndarray:
    sc.pp.pca(cells, n_comps=min(N_PCS, cells.n_vars - 1), random_state=seed)
    return cells.obsm["X_pca"]


def harmony(cells: ad.AnnData, seed: int) -> np.ndarray:
    import harmonypy

    batches = cells.obs[["batch"]].astype(str)
    found = np.asarray(
        harmonypy.run_harmony(pca(cells, seed), batches, "batch", verbose=False, random_state=seed).Z_corr
    )
    return found if len(found) == cells.n_obs else found.T


def scvi(cells: ad.AnnData, seed: int) -> np.ndarray:
    import scvi as package

    package.settings.seed = seed
    package.model.SCVI.setup_anndata(cells, layer="counts", batch_key="batch")
    model = package.model.SCVI(cells)
    model.train(accelerator="cpu", enable_progress_bar=False, logger=False)
    return model.get_latent_representation()


Embed = Callable[[ad.AnnData, int], np.ndarray]
Cluster = Callable[[np.ndarray, int], np.ndarray]
#: Name in tables, embedding and clusters.
METHODS: dict[str, tuple[str, Embed, Cluster]] = {
    "PCA": ("PCA, resolution 1", pca, at_default),
    "PhenoGraph": ("PhenoGraph", pca, phenograph),
    "Harmony": ("Harmony, resolution 1", harmony, at_default),
    "scVI": ("scVI, resolution 1", scvi, at_default),
}

if __name__ == "__main__":
    main()
