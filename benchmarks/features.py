"""Proteins of a query from its reference: DICE beside ridge and neighbours on principal components, and totalVI.

    python benchmarks/features.py [--seeds 5] [--pairs ...]

Random splits (a fifth of bmmc and of 5,000 cells of Liu as query), and other sites and batches. Proteins are centred
log-ratios within cells. `correlation` is the median over proteins of that with the measured values; `coverage` and
`width` are those of 90 % intervals, the width in standard deviations of the protein; `held` is the share of proteins
covered .88 to .92; `order` is how often a protein that is called useless has a smaller correlation than one that is
not. Seconds of DICE are those of the call and of the training of the prior. Intervals of the others are split
conformal ones on a tenth of the reference's cells, as wide for all cells. totalVI (features_peers.py) gives none.
"""

from __future__ import annotations

import time

import anndata as ad
import numpy as np
import pandas as pd
from proteins import PAIRS, correlations, proteins
from report import OUT, repeat, save, summary
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from transfer import scaled

import dice

ALPHA = 0.1
KEY = "protein_clr"
FIGURES = ["correlation", "coverage", "held", "width", "useless", "order", "seconds", "training_seconds"]


def main() -> None:
    # Once more at the end: there may be new rows of features_peers.py alone.
    show(repeat("features", PAIRS, run, show, across="pair", option="--pairs"))


def show(rows: pd.DataFrame) -> None:
    own, peers = rows, OUT / "features_peers.csv"
    if peers.exists():
        rows = pd.concat([rows, pd.read_csv(peers)])
    # Where no protein was called useless, there is no order to judge.
    figures = [figure for figure in FIGURES if figure in rows]
    tables = {
        name: summary(rows[rows["pair"] == name], ["method"], figures) for name in PAIRS if name in set(rows["pair"])
    }
    save("features", "Features of a query", own, tables, __doc__.split("\n\n")[2])


def run(name: str, seed: int) -> list[dict[str, object]]:
    reference, query = proteins(name, seed)
    truth = query.obsm[KEY].to_numpy()
    rows = []
    for method, predict in METHODS.items():
        start = time.perf_counter()
        mean, half, extra = predict(reference, query, seed)
        row = {"method": method, "seconds": time.perf_counter() - start}
        rows.append(row | scores(mean, half, truth, extra.pop("flags", None)) | extra)
        print(rows[-1], flush=True)
    return rows


def scores(mean: np.ndarray, half: np.ndarray, truth: np.ndarray, flags: np.ndarray | None) -> dict[str, float]:
    found = correlations(mean, truth)
    covered = (np.abs(truth - mean) <= half).mean(0)
    row = {
        "correlation": float(np.nanmedian(found)),
        "coverage": float(covered.mean()),
        "held": float(((covered >= 0.88) & (covered <= 0.92)).mean()),
        "width": float(np.median(2 * half.mean(0) / truth.std(0))),
    }
    if flags is not None:
        row["useless"] = float(flags.mean())
        if flags.any() and not flags.all():
            row["order"] = float((found[flags][:, None] < found[~flags]).mean())
    return row


def by_dice(reference: ad.AnnData, query: ad.AnnData, seed: int) -> tuple[np.ndarray, np.ndarray, dict]:
    reference, query = reference.copy(), query.copy()
    del query.obsm[KEY], query.obsm["protein"]
    start = time.perf_counter()
    dice.tl.train_prior(reference, random_state=seed)
    training = time.perf_counter() - start
    dice.tl.transfer_features(query, reference, KEY, alpha=ALPHA, random_state=seed)
    mean, high = (query.obsm[key].to_numpy() for key in (f"{KEY}_dice", f"{KEY}_dice_high"))
    extra = {
        "flags": query.uns[f"{KEY}_dice"]["features"]["useless"],
        "training_seconds": training,
        "seconds": time.perf_counter() - start - training,
    }
    return mean, high - mean, extra


def by_sklearn(make) -> object:
    def predict(reference: ad.AnnData, query: ad.AnnData, seed: int) -> tuple[np.ndarray, np.ndarray, dict]:
        x, new = scaled(reference, query)
        pca = PCA(50, random_state=seed).fit(x)
        x, new, y = pca.transform(x), pca.transform(new), reference.obsm[KEY].to_numpy()
        mean = make().fit(x, y).predict(new)
        held = np.random.default_rng(seed).permutation(len(x)) < len(x) // 10
        errors = np.sort(np.abs(y[held] - make().fit(x[~held], y[~held]).predict(x[held])), axis=0)
        rank = int(np.ceil((held.sum() + 1) * (1 - ALPHA))) - 1
        return mean, np.broadcast_to(errors[rank], mean.shape), {}

    return predict


METHODS = {
    "DICE": by_dice,
    "ridge on PCA": by_sklearn(lambda: Ridge(1.0)),
    "15-NN on PCA": by_sklearn(lambda: KNeighborsRegressor(15)),
}

if __name__ == "__main__":
    main()
