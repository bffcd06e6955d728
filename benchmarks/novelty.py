"""Cells of a type that the reference lacks: every type of two data sets left out in turn.

    python benchmarks/novelty.py [--seeds 5]

A random fifth of the cells and all cells of the left-out type are the query; types of at least 20 cells are left out.
AUROC tells novel cells from the others of the query. "fdp" is the share of known cells among those called novel at a
nominal rate of 0.1 (0 where none is called), "power" the share of novel cells that are called. Groups are the query's
types: "found" is how often a left-out type of at least 30 cells is called, "false" how many known types are among the
groups called. Novelty does not look at the network, which is therefore not trained.
"""

from __future__ import annotations

from collections.abc import Iterator

import anndata as ad
import numpy as np
import pandas as pd
from data import load, variable_genes
from report import repeat, save, summary
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import dice
from dice._model.offsets import soft_assignment, unit

DATA = {"bmmc": "bmmc_neurips_cite", "pancreas atlas": "pancreas_cellhint_atlas", "Baron": "pancreas_baron_h1"}
LEAST, LEAST_GROUP, FDR = 20, 30, 0.1


def main() -> None:
    repeat("novelty", DATA, run, show)


def show(rows: pd.DataFrame) -> None:
    # Seeds are the repetitions: types are averaged within each first.
    means = rows.groupby(["data", "method", "seed"], sort=False)[["auroc", "fdp", "power"]].mean().reset_index()
    types = summary(rows, ["data", "left_out", "method"], ["auroc"])
    wide = types.set_index(["data", "left_out", "method"])["auroc"].unstack().reset_index()  # noqa: PD010
    tables = {
        "Mean over types": summary(means, ["data", "method"], ["auroc", "fdp", "power"]),
        "Groups": groups_called(rows),
        "AUROC by type": wide,
    }
    save("novelty", "Novelty", rows, tables, __doc__.split("\n\n")[2])


def groups_called(rows: pd.DataFrame) -> pd.DataFrame:
    """Sums over types and seeds: single ones are yes or no."""
    counts = rows.dropna(subset="called").groupby(["data", "method"], sort=False)
    sums = counts[["found", "tested", "false", "called"]].sum()
    told = {"found": ("found", "tested"), "false": ("false", "called")}
    for column, parts in told.items():
        sums[column] = [f"{some:.0f} of {whole:.0f}" for some, whole in sums[list(parts)].itertuples(index=False)]
    return sums[list(told)].reset_index()


def run(name: str, seed: int) -> Iterator[dict[str, object]]:
    adata = load(DATA[name])
    adata.obs["cell_type"] = adata.obs["cell_type"].astype(str)
    counts = adata.obs["cell_type"].value_counts()
    for left in counts.index[counts >= LEAST]:
        yield from without(adata, left, seed)


def without(adata: ad.AnnData, left: str, seed: int) -> list[dict[str, object]]:
    """Rows of one type that is left out of the reference."""
    rng = np.random.default_rng(seed)
    novel = (adata.obs["cell_type"] == left).to_numpy()
    test = (rng.random(adata.n_obs) < 0.2) | novel
    reference = variable_genes(adata[~test].copy(), 2000)
    query = adata[test][:, reference.var_names].copy()
    dice.tl.train_prior(reference, training=dice.Training(max_steps=1, calibration_fraction=0.15), random_state=seed)
    truth = (query.obs["cell_type"] == left).to_numpy()
    rows = []
    for method, labels_key in (("DICE, labels", "cell_type"), ("DICE, clusters", None)):
        dice.tl.novelty(query, reference, alpha=FDR, labels_key=labels_key, groupby="cell_type")
        called = query.obs["dice_novel"].to_numpy()
        rows.append({"method": method, "auroc": roc_auc_score(truth, query.obs["dice_novelty"])})
        rows[-1] |= {"fdp": (called & ~truth).sum() / max(called.sum(), 1), "power": called[truth].mean()}
        groups = query.uns["dice_novelty"]["groups"]
        novel = set(np.asarray(groups["group"])[np.asarray(groups["novel"])])
        rows[-1] |= {"tested": int(truth.sum() >= LEAST_GROUP), "called": len(novel), "false": len(novel - {left})}
        rows[-1]["found"] = int(left in novel) * rows[-1]["tested"]
    y, known = latents(query, reference), reference.obsm["X_dice_pca"]
    scale = np.sqrt(known.var(0).mean())
    regression = LogisticRegression(C=0.5, max_iter=200).fit(known / scale, reference.obs["cell_type"])
    doubt = 1 - regression.predict_proba(y / scale).max(1)
    rows.append({"method": "1 - max probability", "auroc": roc_auc_score(truth, doubt)})
    rows.append({"method": "Symphony's score", "auroc": roc_auc_score(truth, mapping_score(known, y, seed))})
    return [{"left_out": left} | row for row in rows]


def latents(query: ad.AnnData, reference: ad.AnnData) -> np.ndarray:
    prior = dice.Prior.from_anndata(reference)
    return prior.projection.project(query[:, prior.genes].X.tocsr().astype(np.float32))


def mapping_score(known: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
    """Symphony's mapping metric per cell: Mahalanobis distance to reference clusters, by soft assignment."""
    clusters = KMeans(min(100, max(len(known) // 30, 2)), n_init=1, random_state=seed).fit(unit(known))
    centres = unit(clusters.cluster_centers_)
    soft, weights = (soft_assignment(unit(cells), centres) for cells in (known, query))
    score = np.zeros(len(query))
    for index in range(len(centres)):
        share = soft[:, index] / soft[:, index].sum()
        mean = share @ known
        covariance = (known - mean).T @ ((known - mean) * share[:, None])
        covariance += 1e-2 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        offset = query - mean
        distance = np.sqrt(np.einsum("ij,ij->i", offset, np.linalg.solve(covariance, offset.T).T))
        score += weights[:, index] * distance
    return score


if __name__ == "__main__":
    main()
