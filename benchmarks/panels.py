"""Labels of panels: a spatial query, and queries of few genes and 100 counts a cell.

    python benchmarks/panels.py [--seeds 1] [--pairs ...]

`MOp -> STARmap` labels a spatial query (3 sections of mouse prefrontal cortex, 48 shared genes) by its five classes.
All other rows are pairs of transfer.py, at most 2,500 cells a side, whose query keeps the 50, 100 or 200 genes of a
panel and at most 100 counts a cell. `markers` are chosen in turn for every label of the reference by a t statistic,
`random` are random variable genes. All methods see the shared genes alone. DICE gets raw counts and normalises them by
dice.pp.normalize_panel. The others get the same values, except celltypist, which accepts nothing but ten thousand
counts per cell; a regression on such values is shown as well. Accuracy and macro-F1 are those of the most likely label.
Doubt, of DICE alone: how many of its 90 % sets hold the label and how many labels they have, and how many safe labels
(dice.tl.safe_labels) are labels of the reference (`finest`), and how many are right (`safe_right`). Other tools are
added by `python benchmarks/transfer_peers.py --panels --method ...`.
"""

from __future__ import annotations

import time

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
import trial
from data import find
from report import OUT, repeat, save, summary
from scipy import sparse
from shifts import TRANSFER, transfer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

SIZES, DESIGNS, DEPTH, MAX_CELLS, MAX_STEPS = (50, 100, 200), ("markers", "random"), 100, 2500, 400
STARMAP = "MOp -> STARmap"
CASES = [STARMAP, *(f"{pair}, {n} {design}" for pair in TRANSFER for design in DESIGNS for n in SIZES)]
DOUBT = ["coverage", "set_size", "confident", "confident_accuracy", "finest", "safe_right"]


def main() -> None:
    show(repeat("panels", CASES, run, show, across="pair", option="--pairs"))


def show(rows: pd.DataFrame) -> None:
    own, peers = rows, OUT / "panels_peers.csv"
    if peers.exists():
        rows = pd.concat([rows, pd.read_csv(peers)])
    tables = {}
    for measure in ("accuracy", "macro_f1"):
        wide = summary(rows, ["pair", "method"], [measure]).set_index(["pair", "method"])[measure].unstack()  # noqa: PD010
        tables[measure] = wide.reindex(rows["pair"].unique())[list(rows["method"].unique())].fillna("-").reset_index()
    tables["doubt"] = summary(own[own["method"] == "DICE"], ["pair"], DOUBT)
    tables["seconds"] = summary(rows, ["method"], ["seconds"])
    save("panels", "Labels of panels", own, tables, __doc__.split("\n\n")[2])


def cells(name: str, seed: int) -> tuple[ad.AnnData, ad.AnnData, str]:
    """Counts of a reference and of a query in the genes of a panel, and the name of their labels."""
    if name == STARMAP and trial.FOLDER is None:
        reference, query = (ad.read_h5ad(find(each)) for each in ("mop_mouse_10x_500genes", "mpfc_starmap"))
        rng = np.random.default_rng(seed)
        kept = query.obs["cell_class"].isin(reference.obs["cell_class"].unique()).to_numpy()
        query = query[kept & (rng.random(query.n_obs) >= 0.1 * (seed > 0))]
        shared = reference.var_names[reference.var_names.isin(query.var_names)]
        return reference[:, shared].copy(), query[:, shared].copy(), "cell_class"
    pair, _, panel = ("bmmc sites, 50 random" if name == STARMAP else name).rpartition(", ")
    reference, query, key = transfer(pair, seed)
    rng = np.random.default_rng([seed, len(name)])
    reference, query = (_some(each, rng) for each in (reference, query))
    query = query[query.obs[key].isin(reference.obs[key].unique())]
    genes = chosen_genes(reference, key, int(panel.split()[0]), panel.split()[1], rng)
    reference, query = reference[:, genes].copy(), query[:, genes].copy()
    reference.X, query.X = reference.layers["counts"], thinned(query.layers["counts"], rng)
    for each in (reference, query):
        del each.layers["counts"]
        each.obs[key] = each.obs[key].astype(str).astype("category")
    return reference, query, key


def _some(adata: ad.AnnData, rng: np.random.Generator) -> ad.AnnData:
    if adata.n_obs <= MAX_CELLS:
        return adata
    return adata[np.sort(rng.choice(adata.n_obs, MAX_CELLS, replace=False))]


def chosen_genes(reference: ad.AnnData, key: str, n: int, design: str, rng: np.random.Generator) -> np.ndarray:
    """Positions of the genes of a panel: random ones, or the best markers of every label in turn."""
    n = min(n, reference.n_vars)
    if design == "random":
        return np.sort(rng.choice(reference.n_vars, n, replace=False))
    x, labels = reference.X.toarray(), reference.obs[key].astype(str).to_numpy()
    orders = []
    for label in np.unique(labels):
        own, other = x[labels == label], x[labels != label]
        spread = np.sqrt(own.var(0) / len(own) + other.var(0) / len(other) + 1e-9)
        orders.append(np.argsort(-(own.mean(0) - other.mean(0)) / spread))
    in_turn = np.stack(orders, axis=1).ravel()
    return np.sort(in_turn[np.sort(np.unique(in_turn, return_index=True)[1])[:n]])


def thinned(counts: sparse.csr_matrix, rng: np.random.Generator) -> sparse.csr_matrix:
    """Random counts of every cell, at most `DEPTH`."""
    dense = counts.toarray().astype(np.int64)
    for row in dense:
        if row.sum() > DEPTH:
            row[:] = rng.multivariate_hypergeometric(row, DEPTH)
    return sparse.csr_matrix(dense.astype(np.float32))


def normalised(name: str, seed: int, *, target_sum: float | None = None) -> tuple[ad.AnnData, ad.AnnData, str]:
    """The same cells for other methods, by default with the values of DICE: counts of a median query cell, logged."""
    reference, query, key = cells(name, seed)
    target_sum = float(np.median(np.asarray(query.X.sum(1)))) if target_sum is None else target_sum
    for adata in (reference, query):
        adata.layers["counts"] = adata.X.copy()
        sc.pp.normalize_total(adata, target_sum=target_sum)
        sc.pp.log1p(adata)
    return reference, query, key


def run(name: str, seed: int) -> list[dict[str, object]]:
    reference, query, key = cells(name, seed)
    rows = [by_dice(reference, query, key, seed)]
    for method, target_sum in (("LR on genes", None), ("LR on genes, ten thousand", 1e4)):
        reference, query, key = normalised(name, seed, target_sum=target_sum)
        start, x, new = time.perf_counter(), reference.X.toarray(), query.X.toarray()
        mean, deviation = x.mean(0), x.std(0)
        deviation[deviation == 0] = 1
        x, new = (np.clip((values - mean) / deviation, -10, 10) for values in (x, new))
        guess = LogisticRegression(max_iter=300).fit(x, reference.obs[key].astype(str)).predict(new)
        row = {"method": method, "seconds": time.perf_counter() - start}
        rows.append(row | scores(query.obs[key].astype(str).to_numpy(), guess))
    return rows


def scores(truth: np.ndarray, guess: np.ndarray) -> dict[str, float]:
    f1 = f1_score(truth, guess, average="macro", labels=np.unique(truth), zero_division=0)
    return {"accuracy": float((truth == guess).mean()), "macro_f1": float(f1)}


def by_dice(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int) -> dict[str, object]:
    import dice

    truth, start = query.obs[key].astype(str).to_numpy(), time.perf_counter()
    dice.pp.normalize_panel(query, reference)
    training = dice.Training(max_steps=MAX_STEPS)
    dice.tl.train_prior(reference, labels_key=key, layer="dice_panel", training=training, random_state=seed)
    dice.tl.transfer_labels(query, reference, key, random_state=seed)
    row = {"method": "DICE", "seconds": time.perf_counter() - start}
    guess, safe = (query.obs[f"{key}_dice{end}"].astype(str).to_numpy() for end in ("", "_safe"))
    record = query.uns[f"{key}_dice_safe"]
    above = dict(zip(record["node"], record["parent"], strict=True))
    right = [label in lineage(own, above) for own, label in zip(truth, safe, strict=True)]
    doubt = dice.tl.evaluate(query, key, protocol="labels").loc["all cells", DOUBT[:4]]
    row |= {"finest": record["params"]["finest"], "safe_right": float(np.mean(right))}
    return row | scores(truth, guess) | dict(doubt)


def lineage(label: str, above: dict[str, str]) -> set[str]:
    """A label and all nodes above it in a tree."""
    found: set[str] = set()
    while label not in found:
        found.add(label)
        label = above.get(label, label)
    return found


if __name__ == "__main__":
    main()
