"""What ``dice_uncertainty`` tells: errors of transferred labels, and how far a second measurement of the cell is away.

    python benchmarks/uncertainty.py [--seeds 1]

Random splits as in benchmarks/real.py. ``errors`` is the AUROC of a figure for cells whose most likely transferred
label is wrong: of the uncertainty, and of one minus the label's probability beside it. ``within`` is the mean of the
same AUROC over types, which asks for more than that some types are hard. ``second half``: the query is denoised from
one random half of its counts; the AUROC of the uncertainty for cells whose other half is farther away than the median.
"""

from __future__ import annotations

import argparse

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
from data import FILES, pair, without_single_cells
from report import prepare, publish
from sklearn.metrics import roc_auc_score

import dice


def main() -> None:
    parser = argparse.ArgumentParser(description="What the uncertainty of a cell tells.")
    parser.add_argument("--data", nargs="*", default=list(FILES), choices=list(FILES))
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    prepare()
    rows = []
    for seed in range(arguments.seeds):
        for name in arguments.data:
            rows.append({"data": name, "seed": seed, "method": "uncertainty"} | run(name, seed))
            print({k: round(x, 3) if isinstance(x, float) else x for k, x in rows[-1].items()}, flush=True)
            note = __doc__.split("\n\n", 2)[2]
            publish("uncertainty", pd.DataFrame(rows), by=["method"], title="What the uncertainty tells", note=note)


def run(name: str, seed: int) -> dict[str, float]:
    reference, query = pair(name, seed)
    reference = without_single_cells(reference, "cell_type").copy()
    query = query[query.obs["cell_type"].isin(reference.obs["cell_type"])].copy()
    dice.tl.train_prior(reference, random_state=seed)
    dice.tl.denoise(query, reference, random_state=seed)
    dice.tl.transfer_labels(query, reference, "cell_type", random_state=seed)
    truth = query.obs["cell_type"].astype(str).to_numpy()
    labels = np.array(query.uns["cell_type_dice"]["labels"])
    wrong = labels[query.obsm["cell_type_dice_prob"].to_numpy().argmax(1)] != truth
    uncertainty = query.obs["dice_uncertainty"].to_numpy()
    doubt = 1 - query.obs["cell_type_dice_prob"].to_numpy()
    first, second = halves(query, seed)
    dice.tl.denoise(first, reference, random_state=seed)
    dice.tl.denoise(second, reference, method=dice.Direct(uncertainty=False), random_state=seed)
    away = np.square(first.obsm["X_dice"] - second.obsm["X_dice_pca"]).sum(1)
    far = away > np.median(away)
    return {
        "errors": float(roc_auc_score(wrong, uncertainty)),
        "errors_by_probability": float(roc_auc_score(wrong, doubt)),
        "within": within(wrong, uncertainty, truth),
        "within_by_probability": within(wrong, doubt, truth),
        "second_half": float(roc_auc_score(far, first.obs["dice_uncertainty"])),
    }


def within(wrong: np.ndarray, figure: np.ndarray, types: np.ndarray) -> float:
    """Mean AUROC over types that have at least five right and five wrong cells."""
    found = [
        roc_auc_score(wrong[types == name], figure[types == name])
        for name in np.unique(types)
        if 5 <= wrong[types == name].sum() <= (types == name).sum() - 5
    ]
    return float(np.mean(found)) if found else float("nan")


def halves(query: ad.AnnData, seed: int) -> list[ad.AnnData]:
    """Two independent measurements of the same cells."""
    counts = query.layers["counts"].astype(np.int64).toarray()
    first = np.random.default_rng(seed).binomial(counts, 0.5)
    found = []
    for part in (first, counts - first):
        half = ad.AnnData(part.astype(np.float32), obs=query.obs[[]].copy(), var=query.var[[]].copy())
        sc.pp.normalize_total(half, target_sum=1e4)
        sc.pp.log1p(half)
        found.append(half)
    return found


if __name__ == "__main__":
    main()
