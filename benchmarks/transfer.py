"""Labels of a query from its reference: DICE beside classifiers that need no prior.

    python benchmarks/transfer.py [--seeds 5] [--pairs ...]

Every seed leaves out another tenth of both sides. All methods see the same 2,000 genes and the same reference cells;
DICE gives a tenth of them to its calibration. Accuracy and macro-F1 are those of the most likely label, over query
cells whose type the reference has. Doubt, of DICE alone: how many of its 90 % sets hold the label and how many labels
they have, and how many labels are confident and right.
"""

from __future__ import annotations

import time

import anndata as ad
import numpy as np
import pandas as pd
from report import OUT, repeat, save, summary
from shifts import TRANSFER, transfer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier

import dice

#: Enough for the label-aware prior on all pairs, and a third of the time.
MAX_STEPS = 600
DOUBT = ["coverage", "set_size", "confident", "confident_accuracy"]


def main() -> None:
    # Once more at the end: there may be new rows of transfer_peers.py alone.
    show(repeat("transfer", TRANSFER, run, show, across="pair", option="--pairs"))


def show(rows: pd.DataFrame) -> None:
    own, peers = rows, OUT / "transfer_peers.csv"
    if peers.exists():
        rows = pd.concat([rows, pd.read_csv(peers)])
    # A mean over fewer pairs could not be compared.
    whole = rows[rows.groupby(["method", "seed"])["pair"].transform("nunique") == rows["pair"].nunique()]
    means = whole.groupby(["method", "seed"], sort=False)[["accuracy", "macro_f1", "seconds"]].mean().reset_index()
    rows = pd.concat([rows, means.assign(pair="mean over pairs")])
    tables = {}
    for measure in ("accuracy", "macro_f1"):
        wide = summary(rows, ["pair", "method"], [measure]).set_index(["pair", "method"])[measure].unstack()  # noqa: PD010
        tables[measure] = wide.reindex(rows["pair"].unique())[list(rows["method"].unique())].fillna("-").reset_index()
    tables["seconds"] = summary(rows, ["method"], ["seconds"])
    tables["doubt"] = summary(own[own["method"] == "DICE"], ["pair"], DOUBT)
    save("transfer", "Label transfer", own, tables, __doc__.split("\n\n")[2])


def run(name: str, seed: int) -> list[dict[str, object]]:
    reference, query, key = transfer(name, seed)
    truth = query.obs[key].astype(str).to_numpy()
    rows = [by_dice(reference.copy(), query.copy(), key, seed)]
    for method, classify in METHODS.items():
        start = time.perf_counter()
        guess = classify(reference, query, key, seed)
        rows.append({"method": method, "seconds": time.perf_counter() - start})
        rows[-1] |= scores(truth, guess)
    return rows


def scores(truth: np.ndarray, guess: np.ndarray) -> dict[str, float]:
    f1 = f1_score(truth, guess, average="macro", labels=np.unique(truth), zero_division=0)
    return {"accuracy": float((truth == guess).mean()), "macro_f1": float(f1)}


def by_dice(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int) -> dict[str, object]:
    """The row of DICE; accuracy and macro-F1 are told from the label column as for all others."""
    truth, start = query.obs[key].astype(str).to_numpy(), time.perf_counter()
    dice.tl.train_prior(reference, labels_key=key, training=dice.Training(max_steps=MAX_STEPS), random_state=seed)
    dice.tl.transfer_labels(query, reference, key, random_state=seed)
    row = {"method": "DICE", "seconds": time.perf_counter() - start}
    doubt = dice.tl.evaluate(query, key, protocol="labels").loc["all cells", DOUBT]
    return row | scores(truth, query.obs[f"{key}_dice"].astype(str).to_numpy()) | dict(doubt)


def by_sklearn(make, representation: str):
    def classify(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int) -> np.ndarray:
        x, new = scaled(reference, query)
        if representation == "pca":
            pca = PCA(50, random_state=seed).fit(x)
            x, new = (pca.transform(values) / np.sqrt(pca.explained_variance_.mean()) for values in (x, new))
        return make(seed).fit(x, reference.obs[key].astype(str)).predict(new)

    return classify


def scaled(reference: ad.AnnData, query: ad.AnnData) -> tuple[np.ndarray, np.ndarray]:
    """Genes scaled by the reference and capped at 10, as DICE does."""
    x, new = (adata.X.toarray().astype(np.float32) for adata in (reference, query))
    mean, deviation = x.mean(0), x.std(0)
    deviation[deviation == 0] = 1
    return tuple(np.clip((values - mean) / deviation, -10, 10) for values in (x, new))


METHODS = {
    "kNN on PCA": by_sklearn(lambda seed: KNeighborsClassifier(15), "pca"),
    "LR on PCA": by_sklearn(lambda seed: LogisticRegression(max_iter=300), "pca"),
    "LR on genes": by_sklearn(lambda seed: LogisticRegression(max_iter=300), "genes"),
    "MLP on genes": by_sklearn(lambda seed: MLPClassifier((128,), early_stopping=True, random_state=seed), "genes"),
}

if __name__ == "__main__":
    main()
