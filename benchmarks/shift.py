"""Queries from another technology: labels by all views, by each view alone, and by other methods.

For every pair of :mod:`shifts` a prior is learned on the labelled reference. ``third`` are the same pairs with a random
third of the query's types: another composition under the same shift. ``labels`` is dice.tl.transfer_labels with the
mean of all views (``auto``) and with one view each: accuracy and macro-F1 of the most likely label, how many of its
90 % sets hold the label and how many labels they have, and how many labels are confident and right. ``LR on genes`` is
scikit-learn's logistic regression on scaled genes; ``embedding`` a logistic regression from the denoised reference to
the denoised query, moved by each strategy; ``symphony`` maps the query with symphonypy, ``symphony kNN`` with its own
classifier.

    make bench-shift

writes docs/benchmarks/shift.csv and .md, and goes on where an earlier run stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterator

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
from peers import installed
from report import OUT, prepare, publish
from shifts import PAIRS, pair_of, third_of_types
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from transfer import METHODS

import dice

DOUBT = ["coverage", "set_size", "confident", "confident_accuracy"]
STRATEGIES = {"none": False, "offset": "offset", "clusters": "clusters", "mean": "mean"}
VIEWS = ("auto", False, "clusters", "centered", "standardized", "profiles")
NOTE = (
    "`labels` is dice.tl.transfer_labels by all views (`auto`) or by one. `coverage` is the share of its 90 % sets "
    "that hold the label, `set_size` how many labels they have, `confident` the share of labels called so, and "
    "`confident_accuracy` how many of these are right. `embedding` is a logistic regression from the denoised "
    "reference to the denoised query."
)


def score(model: LogisticRegression, cells: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    return agreement(model.predict(cells), truth)


def agreement(guess: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    f1 = f1_score(truth, guess, average="macro", labels=np.unique(truth))
    return {"accuracy": float(np.mean(guess == truth)), "macro_f1": float(f1)}


def run(name: str, seed: int, peers: list[str]) -> Iterator[dict[str, object]]:
    reference, whole = pair_of(name, seed)
    dice.tl.train_prior(reference, labels_key="cell_type", random_state=seed)
    dice.tl.denoise(reference, method=dice.Direct(uncertainty=False))
    scale = reference.uns["dice"]["latent_scale"]
    known = reference.obs["cell_type"].astype(str).to_numpy()
    model = LogisticRegression(max_iter=300).fit(reference.obsm["X_dice"] / scale, known)
    for composition, query in (("all", whole), ("third", third_of_types(whole, seed))):
        truth = query.obs["cell_type"].astype(str).to_numpy()
        row = {"composition": composition}
        for strategy, shift in STRATEGIES.items():
            dice.tl.denoise(query, reference, shift=shift, method=dice.Direct(uncertainty=False))
            yield {**row, "strategy": f"embedding {strategy}", **score(model, query.obsm["X_dice"] / scale, truth)}
        for view in VIEWS:
            dice.tl.transfer_labels(query, reference, "cell_type", random_state=seed, shift=view)
            guess = query.obs["cell_type_dice"].astype(str).to_numpy()
            doubt = dice.tl.evaluate(query, "cell_type", protocol="labels").loc["all cells", DOUBT]
            yield {**row, "strategy": f"labels {view or 'measured'}", **agreement(guess, truth), **doubt}
        guess = METHODS["LR on genes"](reference, query, "cell_type", seed)
        yield {**row, "strategy": "LR on genes", **agreement(guess, truth)}
        if "symphony" in peers:
            for strategy, guess in symphony(reference, query):
                yield {**row, "strategy": strategy, **agreement(guess, truth)}


def symphony(reference: ad.AnnData, query: ad.AnnData) -> Iterator[tuple[str, np.ndarray]]:
    """symphonypy's mapping on its own PCA, with the same logistic regression and with its own neighbours."""
    import symphonypy as sp

    reference, query = (
        ad.AnnData(a.X.copy(), obs=a.obs[["cell_type"]].copy(), var=a.var[[]].copy()) for a in (reference, query)
    )
    reference.obs["batch"] = np.where(np.arange(reference.n_obs) % 2 == 0, "a", "b")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        reference.var["highly_variable"] = True
        sc.pp.scale(reference, max_value=10)
        sc.pp.pca(reference, n_comps=50, zero_center=False)
        sp.pp.harmony_integrate(reference, key="batch", verbose=False)
        sp.tl.map_embedding(adata_query=query, adata_ref=reference)
        sp.tl.transfer_labels_kNN(query, reference, ["cell_type"], query_labels=["found"])
    before, after = reference.obsm["X_pca_harmony"], query.obsm["X_pca_harmony"]
    model = LogisticRegression(max_iter=300).fit(before / before.std(), reference.obs["cell_type"].astype(str))
    yield "symphony", model.predict(after / before.std())
    yield "symphony kNN", query.obs["found"].astype(str).to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare ways to remove the shift of a query.")
    parser.add_argument("--pairs", nargs="*", default=list(PAIRS))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    prepare()
    peers = installed(["symphony"])
    path = OUT / "shift.csv"
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame({"data": [], "seed": []})
    for seed in range(arguments.seeds):
        for name in arguments.pairs:
            if ((rows.data == name) & (rows.seed == seed)).any():
                continue
            found = pd.DataFrame([{"data": name, "seed": seed, **row} for row in run(name, seed, peers)])
            print(found.drop(columns=["data", "seed"]).round(3).to_string(index=False), flush=True)
            rows = pd.concat([rows, found], ignore_index=True)
            publish("shift", rows, by=["composition", "strategy"], title="Queries of other technologies", note=NOTE)


if __name__ == "__main__":
    main()
