"""Queries that were sequenced less deeply than their reference.

    make bench-depth

A random fifth of at most 5,000 cells is the query, of whose counts a share is kept by binomial thinning, then
normalised as usual; reference, prior and clusters are those of benchmarks/real.py. ``DICE`` is the default
(``shift="auto"``), ``no shift`` leaves the query where it is (``shift=False``). Rows named ``graph`` cluster the
averaged graph.

* ``ari``, ``ari_1``    Leiden clusters against labels, at the best of 39 resolutions and at the default one,
* ``accuracy``, ``macro_f1``  transferred labels; for PCA, those of its 15 nearest reference cells,
* ``coverage``          share of cells whose set of labels holds the true one, 0.9 was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
from data import FILES, MAX_CELLS, hold_out, load, variable_genes, without_single_cells
from real import averaged
from report import publish, repeat
from shift import agreement
from sklearn.neighbors import KNeighborsClassifier
from trial import some

import dice

DATA = ("bmmc", "TEA-seq")
SHARES = (1.0, 0.5, 0.2, 0.1)
METHODS = {"DICE": "auto", "no shift": False}


def main() -> None:
    repeat("depth", FILES, run, show, usual=DATA)


def show(rows: pd.DataFrame) -> None:
    publish("depth", rows, by=["counts", "method"], title="Shallow queries", note=__doc__.split("\n\n", 2)[2])


def run(name: str, seed: int) -> Iterator[dict[str, object]]:
    adata = load(FILES[name])
    adata = adata[np.sort(np.random.default_rng(seed).permutation(adata.n_obs)[:MAX_CELLS])].copy()
    reference, query = hold_out(adata, adata.n_obs // 5, seed)
    reference = without_single_cells(reference, "cell_type").copy()
    query = query[query.obs["cell_type"].isin(reference.obs["cell_type"])].copy()
    reference = variable_genes(reference)
    dice.tl.train_prior(reference, random_state=seed)
    for share in some(SHARES):
        shallow = thinned(query, share, seed)[:, reference.var_names].copy()
        for row in judged(shallow, reference, seed):
            print(
                name, seed, share, {k: round(x, 3) if isinstance(x, float) else x for k, x in row.items()}, flush=True
            )
            yield {"counts": share} | row


def thinned(query: ad.AnnData, share: float, seed: int) -> ad.AnnData:
    """The query with a share of its counts, normalised."""
    counts = query.layers["counts"].astype(np.float32).tocsr(copy=True)
    counts.data = np.random.default_rng(seed).binomial(counts.data.astype(np.int64), share).astype(np.float32)
    shallow = ad.AnnData(counts, obs=query.obs[["cell_type"]], var=query.var[[]])
    sc.pp.normalize_total(shallow, target_sum=1e4)
    sc.pp.log1p(shallow)
    return shallow


def judged(query: ad.AnnData, reference: ad.AnnData, seed: int) -> Iterator[dict[str, object]]:
    """Rows of the projection and of DICE with and without a shift."""
    truth = query.obs["cell_type"].astype(str).to_numpy()
    for method, shift in METHODS.items():
        dice.tl.denoise(query, reference, n_samples=10, random_state=seed, shift=shift)
        dice.tl.transfer_labels(query, reference, "cell_type", random_state=seed, shift=shift)
        if method == "DICE":
            start = query.obsm["X_dice_pca"]
            nearest = KNeighborsClassifier(15).fit(reference.obsm["X_dice_pca"], reference.obs["cell_type"].astype(str))
            yield {"method": "PCA"} | clusters(start, truth) | agreement(nearest.predict(start), truth)
        given = agreement(query.obs["cell_type_dice"].astype(str).to_numpy(), truth)
        sets = query.obsm["cell_type_dice_set"]
        given["coverage"] = float(sets.to_numpy()[np.arange(len(truth)), sets.columns.get_indexer(truth)].mean())
        yield {"method": method} | clusters(query.obsm["X_dice"], truth) | given
        graph = averaged(query.obsm["X_dice_samples"])(np.arange(len(truth)))
        yield {"method": f"{method}, graph"} | clusters(graph, truth)


def clusters(cells: object, truth: np.ndarray) -> dict[str, float]:
    sweep = dice.metrics.leiden_sweep(cells, truth)
    return {"ari": float(sweep.ari.max()), "ari_1": float(sweep[sweep.resolution == 1.0].iloc[0].ari)}


if __name__ == "__main__":
    main()
