"""Labels for the label projection task of Open Problems, in its file format and by its metrics.

    python benchmarks/open_problems.py train.h5ad test.h5ad prediction.h5ad [--solution FILE [--score FILE]]

Files have raw counts in ``layers["counts"]``; train and solution have ``obs["label"]``. The prediction has
``obs["label_pred"]``. With a solution, accuracy and three F1 scores are printed beside the published means of the task,
which are over all of its data sets, and written to the score file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
from sklearn.metrics import accuracy_score, f1_score

import dice

METHOD = "dice"
#: Genes to learn from, as in :func:`dice.tl.annotate`.
N_GENES = 3000
#: Means over the data sets of the task, as published: accuracy and macro-F1.
PUBLISHED = {
    "scANVI + scArches": (0.831, 0.691),
    "Seurat": (0.827, 0.662),
    "logistic regression": (0.814, 0.691),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    for name in ("train", "test", "prediction"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--solution", type=Path, help="the true labels of the test cells")
    parser.add_argument("--score", type=Path, help="where the scores go; needs --solution")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if given.score and not given.solution:
        parser.error("--score needs --solution")
    prediction = predict(ad.read_h5ad(given.train), ad.read_h5ad(given.test), given.seed)
    prediction.write_h5ad(given.prediction)
    if given.solution:
        scores = score(prediction, ad.read_h5ad(given.solution))
        print(beside_published(scores.uns).to_string(float_format="%.3f", na_rep="-"))
        if given.score:
            scores.write_h5ad(given.score)


def predict(train: ad.AnnData, test: ad.AnnData, seed: int = 0) -> ad.AnnData:
    """Return the predicted labels of the test cells as the task stores them."""
    reference, query = normalized(train), normalized(test)
    top = train.var["hvg_score"].rank(ascending=False, method="first") <= N_GENES
    reference.var["highly_variable"] = top.to_numpy()
    dice.tl.train_prior(reference, labels_key="label", random_state=seed)
    dice.tl.transfer_labels(query, reference, "label", random_state=seed)
    obs = pd.DataFrame({"label_pred": query.obs["label_dice"].astype(str)}, index=test.obs_names)
    ids = {key: test.uns[key] for key in ("dataset_id", "normalization_id")}
    return ad.AnnData(obs=obs, uns=ids | {"method_id": METHOD})


def normalized(adata: ad.AnnData) -> ad.AnnData:
    """Return log-normalised expression: the task normalises its files in several ways, the counts are the same."""
    counts = adata.layers["counts"].astype(np.float32)
    cells = ad.AnnData(counts, obs=adata.obs.copy(), var=adata.var.copy())
    cells.layers["counts"] = counts.copy()
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    return cells


def score(prediction: ad.AnnData, solution: ad.AnnData) -> ad.AnnData:
    """Return the task's metrics of a prediction."""
    if not prediction.obs_names.equals(solution.obs_names):
        raise SystemExit("prediction and solution must have the same cells in the same order.")
    truth, guess = solution.obs["label"].astype(str), prediction.obs["label_pred"].astype(str)
    values = {"accuracy": accuracy_score(truth, guess)}
    for average in ("macro", "micro", "weighted"):
        values[f"f1_{average}"] = f1_score(truth, guess, average=average, zero_division=0)
    metrics = {"metric_ids": np.array(list(values)), "metric_values": np.array(list(values.values()))}
    return ad.AnnData(uns=dict(prediction.uns) | metrics)


def beside_published(uns: dict[str, object]) -> pd.DataFrame:
    """Return one row for this data set and one for each published method."""
    rows = {f"{METHOD}, {uns['dataset_id']}": dict(zip(uns["metric_ids"], uns["metric_values"], strict=True))}
    for method, (accuracy, f1) in PUBLISHED.items():
        rows[f"{method}, mean of the task"] = {"accuracy": accuracy, "f1_macro": f1}
    return pd.DataFrame(rows).T


if __name__ == "__main__":
    dice.settings.verbosity = 1
    main()
