"""Queries from another technology: what removing the shift does to label transfer.

For every pair of :mod:`shifts` a prior is learned on the labelled reference. The query is denoised with every strategy,
and a logistic regression on the denoised reference predicts its labels: accuracy and macro-F1. ``third`` are the same
pairs with a random third of the query's types: another composition under the same shift. ``standardize`` scales every
gene of the query by its own mean and standard deviation instead; ``symphony`` maps it with symphonypy, ``symphony kNN``
with its own classifier. ``transfer`` is dice.tl.transfer_labels with ``shift=False`` and with ``"auto"``, from the same
prior: its most likely label, how many of its 90 % sets hold the label and how many labels they have, and how many
labels are confident and right.

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

import dice

DOUBT = ["coverage", "set_size", "confident", "confident_accuracy"]
STRATEGIES = {"none": False, "auto": "auto", "offset": "offset", "clusters": "clusters", "mean": "mean"}
NOTE = (
    "Accuracy and macro-F1 of a logistic regression from the denoised reference to the denoised query. `moved` is how "
    "far the shift moved the embedding, relative to the posterior's own spread; `shift` the score norm of the query "
    "relative to that of the reference's cells, by which `auto` decides. `transfer` is dice.tl.transfer_labels; "
    "`coverage` is the share of its 90 % sets that hold the label, `set_size` how many labels they have, `confident` "
    "the share of labels called so, and `confident_accuracy` how many of these are right."
)


def score(model: LogisticRegression, cells: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    return agreement(model.predict(cells), truth)


def agreement(guess: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    f1 = f1_score(truth, guess, average="macro", labels=np.unique(truth))
    return {"accuracy": float(np.mean(guess == truth)), "macro_f1": float(f1)}


def own_scale(query: ad.AnnData, reference: ad.AnnData) -> ad.AnnData:
    """The query with the reference's mean and standard deviation in every gene."""
    moved = query.copy()
    x, r = (np.asarray(a.X.todense()) for a in (query, reference))
    moved.X = (x - x.mean(0)) / np.maximum(x.std(0), 1e-3) * r.std(0) + r.mean(0)
    return moved


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
        before = None
        for strategy, shift in STRATEGIES.items():
            dice.tl.denoise(query, reference, shift=shift)
            cells, spread = query.obsm["X_dice"], np.square(query.obs["dice_uncertainty"]).mean() ** 0.5
            before = cells.copy() if before is None else before
            moved = np.square(cells - before).mean() ** 0.5 / spread
            norms = query.uns["X_dice"]["shift"].get("score_norm", {"none": np.nan, "expected": 1.0})
            yield {
                **row,
                "strategy": strategy,
                **score(model, cells / scale, truth),
                "moved": float(moved),
                "shift": float(norms["none"] / norms["expected"]),
            }
        for shift in (False, "auto"):
            dice.tl.transfer_labels(query, reference, "cell_type", random_state=seed, shift=shift)
            guess = query.obs["cell_type_dice"].astype(str).to_numpy()
            doubt = dice.tl.evaluate(query, "cell_type", protocol="labels").loc["all cells", DOUBT]
            yield {**row, "strategy": f"transfer {shift or 'none'}", **agreement(guess, truth), **doubt}
        own = own_scale(query, reference)
        dice.tl.denoise(own, reference, check=False, shift=False)
        yield {**row, "strategy": "standardize", **score(model, own.obsm["X_dice"] / scale, truth)}
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
