"""How many latents? The default of ``dice.tl.train_prior(n_latent=)``, from real data.

    python benchmarks/n_latent.py [--seeds 2] [--data ...]

A prior is learned on the reference with several numbers of latents, and the query is denoised with the defaults;
reference and query are the random splits of benchmarks/real.py. Held-out losses of different numbers of latents cannot
be compared, but labels that the training has not seen can:

* ``knn_f1``   macro-F1 of a 15-nearest-neighbour vote of the reference for the query,
* ``logreg``   accuracy of a logistic regression from the reference to the query,
* ``ari``      Leiden at resolution 1 on the query against its labels,

each for the denoised embedding and, with ``pca_`` before its name, for the projection that it started from.
``cpu_seconds`` are those of ``train_prior``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import anndata as ad
import numpy as np
import pandas as pd
from data import FILES, pair
from real import vote
from report import publish, repeat
from sklearn.linear_model import LogisticRegression
from trial import some

import dice
from dice._clusters.partition import communities
from dice._data.graph import neighbor_graph

N_LATENT = ("elbow", "25", "50", "60", "100")


def main() -> None:
    repeat("n_latent", FILES, run, show)


def show(rows: pd.DataFrame) -> None:
    rows = rows.assign(n_latent=rows["n_latent"].astype(str))
    publish("n_latent", rows, by=["n_latent"], title="Number of latents", note=__doc__.split("\n\n", 2)[2])


def run(name: str, seed: int) -> Iterator[dict[str, object]]:
    reference, query = pair(name, seed)
    for n_latent in some(N_LATENT):
        k = int(n_latent) if n_latent.isdigit() else n_latent
        start = time.process_time()
        training = dice.Training(calibration_fraction=0.0)
        dice.tl.train_prior(reference, n_latent=k, training=training, random_state=seed)
        seconds = time.process_time() - start
        for cells in (reference, query):
            dice.tl.denoise(cells, reference, method=dice.Direct(uncertainty=False))
        row = {"n_latent": n_latent, "k": reference.obsm["X_dice_pca"].shape[1], **score(reference, query, "X_dice")}
        row |= {f"pca_{name}": value for name, value in score(reference, query, "X_dice_pca").items()}
        print(name, seed, row, flush=True)
        yield row | {"cpu_seconds": seconds}


def score(reference: ad.AnnData, query: ad.AnnData, key: str) -> dict[str, float]:
    """Figures of one embedding."""
    known, truth = (a.obs["cell_type"].astype(str).to_numpy() for a in (reference, query))
    train, test = (np.asarray(a.obsm[key]) for a in (reference, query))
    regression = LogisticRegression(max_iter=100).fit(train / train.std(), known)
    return {
        "knn_f1": vote(train, known, test, truth),
        "logreg": float(regression.score(test / train.std(), truth)),
        "ari": dice.metrics.ari(truth, communities(neighbor_graph(test, 15), 1.0)),
    }


if __name__ == "__main__":
    main()
