"""How many latents? The default of ``dice.tl.train_prior(n_latent=)``, from real data.

A prior is learned on reference cells for several numbers of latents, and held-out cells of the same data set are
denoised. Held-out losses of different numbers of latents cannot be compared; labels that the training has not seen can:

* ``knn_f1``   macro-F1 of a 15-nearest-neighbour vote of the reference for the held-out cells,
* ``logreg``   accuracy of a logistic regression from the reference to the held-out cells,
* ``ari``      Leiden at resolution 1 on the held-out cells against their labels,

each for the denoised embedding and, with ``pca_`` before its name, for the projection it started from.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 .venv/bin/python benchmarks/n_latent.py

writes docs/benchmarks/n_latent.csv and .md. Data are looked for in DICE_DATA (default ../shared/data).
"""

from __future__ import annotations

import argparse
import time

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
import torch
from data import find
from report import OUT, prepare, provenance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier

import dice
from dice._data.graph import leiden
from dice._data.matrix import Matrix
from dice._model import presets
from dice._model.pca import elbow, fit_projection

DATA = {
    "bmmc_neurips_cite": None,
    "pbmc_teaseq": None,
    "pancreas_cellhint_atlas": ("suspension_type", "cell"),
    "pbmc_liu_covid_citeseq": None,
}
N_LATENT = ("elbow", 25, 50, 60, 100)
#: At most so many cells in all; a fifth of them is held out.
N_CELLS = 4000


def load(name: str, seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    """Reference and held-out cells: log-normalised, the reference's 3,000 highly variable genes."""
    adata = ad.read_h5ad(find(name))
    if DATA[name]:
        column, value = DATA[name]
        adata = adata[adata.obs[column] == value]
    order = np.random.default_rng(seed).permutation(adata.n_obs)[:N_CELLS]
    adata = adata[order].copy()
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    n = adata.n_obs // 5
    query, reference = adata[:n].copy(), adata[n:].copy()
    sc.pp.highly_variable_genes(reference, n_top_genes=min(3000, adata.n_vars), flavor="seurat")
    return reference, query


def score(prefix: str, train: np.ndarray, test: np.ndarray, known: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    neighbours = KNeighborsClassifier(15).fit(train, known)
    regression = LogisticRegression(max_iter=100).fit(train / train.std(), known)
    return {
        f"{prefix}knn_f1": f1_score(truth, neighbours.predict(test), average="macro"),
        f"{prefix}logreg": float(regression.score(test / train.std(), truth)),
        f"{prefix}ari": dice.metrics.ari(truth, leiden(test)),
    }


def run(name: str, seed: int, max_steps: int) -> list[dict[str, object]]:
    reference, query = load(name, seed)
    known, truth = (a.obs["cell_type"].astype(str).to_numpy() for a in (reference, query))
    genes = reference.var["highly_variable"].to_numpy()
    matrices = reference[:, genes].X, query[:, genes].X
    # One PCA for all: fewer latents are the first of them.
    whole = fit_projection(Matrix(ad.AnnData(matrices[0])), n_latent=max(n for n in N_LATENT if n != "elbow"))
    latents = [whole.project(matrix) for matrix in matrices]
    energy = np.square(whole.standardizer(matrices[0]).dense()).sum() / (reference.n_obs - 1)
    rows = []
    for n_latent in N_LATENT:
        k = elbow(whole.singular_values) if n_latent == "elbow" else n_latent
        y = [np.asarray(points[:, :k], dtype=np.float32) for points in latents]
        noise = np.sqrt((energy - y[0].var(0, ddof=1).sum()) / (genes.sum() - k))
        scale = float(np.sqrt(y[0].var(0).mean()))
        data = presets.plain_data(y[0], presets.assign_roles(len(y[0]), 0.1, 0, seed), torch.device("cpu"))
        start = time.process_time()
        trainer = presets.make_trainer("default", data, noise=noise / scale, seed=seed, max_steps=max_steps)
        for _ in trainer.steps():
            pass
        seconds = time.process_time() - start
        # The level of denoise's defaults: measured noise, and rho of half the latent scale.
        s = torch.tensor(np.hypot(noise / scale, 0.5), dtype=torch.float32)
        with torch.no_grad():
            u = [trainer.denoiser(torch.as_tensor(points / scale), s).numpy() * scale for points in y]
        row = {"data": name, "seed": seed, "n_latent": n_latent, "k": k, "cpu_seconds": round(seconds, 1)}
        row |= score("pca_", *y, known, truth) | score("", *u, known, truth)
        print(row, flush=True)
        rows.append(row)
    return rows


def report(table: pd.DataFrame) -> str:
    """Means over seeds, and over data sets at the end."""
    figures = ["knn_f1", "logreg", "ari", "pca_knn_f1", "pca_logreg", "pca_ari"]
    lines = [
        "---",
        "orphan: true",
        "---",
        "",
        "# Number of latents",
        "",
        provenance(table),
        "",
        "| data | n_latent | k | " + " | ".join(figures) + " | CPU s |",
    ]
    lines.append("|---|---|---|" + "---|" * (len(figures) + 1))
    means = table.groupby(["data", "n_latent"], sort=False)[["k", *figures, "cpu_seconds"]].mean()
    total = means.groupby("n_latent", sort=False).mean()
    for (data, n_latent), row in [*means.iterrows(), *((("**mean**", n), r) for n, r in total.iterrows())]:
        values = " | ".join(f"{row[f]:.3f}" for f in figures)
        lines.append(f"| {data} | {n_latent} | {row['k']:.0f} | {values} | {row['cpu_seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare numbers of latents on held-out cells.")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--data", nargs="*", default=list(DATA))
    arguments = parser.parse_args()
    prepare()  # 100 iterations of the regression are enough: its warnings are not shown
    rows: list[dict[str, object]] = []
    OUT.mkdir(parents=True, exist_ok=True)
    # Written after every data set: a long run that is cut short is not lost.
    for seed in range(arguments.seeds):
        for name in arguments.data:
            rows += run(name, seed, arguments.max_steps)
            table = pd.DataFrame(rows)
            table.round(4).to_csv(OUT / "n_latent.csv", index=False)
            (OUT / "n_latent.md").write_text(report(table))


if __name__ == "__main__":
    main()
