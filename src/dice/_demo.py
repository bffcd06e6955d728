"""The demonstration: held-out cells of a real data set, before and after denoising."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from sklearn.linear_model import LogisticRegression

import dice
from dice._files import atomic

LABELS = "cell_type"
#: The plain projection, and the denoised embedding of a prior trained without and with labels.
NAMES = {"X_dice_pca": "PCA", "X_dice": "DICE", "X_dice_labels": "DICE (labels)"}


def run(folder: Path, *, random_state: int = 0) -> pd.DataFrame:
    """Train on 80 % of the cells, denoise the rest, and write query and picture to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    reference, query = hold_out(dice.datasets.pbmc68k(), random_state)
    seconds = {}
    for key, labels_key in (("X_dice", None), ("X_dice_labels", LABELS)):
        start = time.perf_counter()
        dice.tl.train_prior(reference, labels_key=labels_key, random_state=random_state)
        dice.tl.denoise(query, reference, key_added=key)
        seconds[NAMES[key]] = time.perf_counter() - start
        dice.tl.denoise(reference, key_added=key)
    table = compare(reference, query)
    table["seconds"] = pd.Series(seconds)
    with atomic(folder / "query.h5ad") as draft:
        query.write_h5ad(draft)
    dice.pl.comparison(query, color=LABELS, show=False, save=folder / "umap.png")
    return table


def hold_out(adata: AnnData, random_state: int, fraction: float = 0.2) -> tuple[AnnData, AnnData]:
    """Random reference and query cells."""
    query = np.random.default_rng(random_state).random(adata.n_obs) < fraction
    return adata[~query].copy(), adata[query].copy()


def compare(reference: AnnData, query: AnnData) -> pd.DataFrame:
    """Metrics of both representations, and accuracy of labels transferred by a plain classifier."""
    table = dice.tl.evaluate(query, LABELS, use_rep=tuple(NAMES))
    table = table[["silhouette", "ari", "nmi", "clisi"]].rename(index=NAMES)
    truth = query.obs[LABELS].astype(str)
    for representation, name in NAMES.items():
        classifier = LogisticRegression(max_iter=1000)
        classifier.fit(reference.obsm[representation], reference.obs[LABELS].astype(str))
        predicted = classifier.predict(query.obsm[representation])
        table.loc[name, "label_accuracy"] = (predicted == truth).mean()
    return table
