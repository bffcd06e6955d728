"""Clusters without labels, at each method's own choice of how many there are.

Every method sees the query of a pair (random splits, other sites, studies and technologies, queries with a fourth of
their counts) and no label. Figures:

* ``ari``, ``nmi``, ``ami``   its own clusters against the labels,
* ``types_found``    share of the types with at least 20 cells whose best cluster has an F1 of .5 or more,
* ``ceiling``        the best ARI of the paper's 39 resolutions on the same graph or embedding, where there is one,
* ``n_clusters``     beside ``n_types``,
* ``agreement``      adjusted Rand index of its clusters of two halves of the counts,
* ``seconds``        of the clustering alone.

Whole sets are clustered by themselves, with a prior of their own, and so are cells without structure: ``shuffled``
(thinned to equal depth, then every gene shuffled between all cells), ``depth only`` (drawn from one profile at the
depths of the cells), and ``one type`` (a tenth of the cells of one type). There ``n_clusters`` should be 1.

PhenoGraph chooses for itself. Could not be run: ESCHR (not in the registry), CHOIR (R), scICE (Julia), scstability
(Python 3.12 and later), SCCAF 0.0.10 (an argument that scikit-learn no longer has).

    make bench-clusters

writes docs/benchmarks/clusters, clusters_others, clusters_whole and clusters_null (.csv and .md) row by row, and goes
on where an earlier run stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import real
import scanpy as sc
from data import FILES, load, variable_genes
from peers import embed, installed
from report import OUT, prepare, publish, resume
from scipy import sparse
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

import dice
from dice._clusters.partition import as_graph, communities
from dice._data.graph import neighbor_graph
from dice._model.counts import halves, recover, split

TRAINING = dice.Training(calibration_fraction=0.0, max_steps=600)
SHALLOW = {f"{name}, 25 % of counts": name for name in FILES}
DATA = [*FILES, *SHALLOW, "bmmc by site", *real.PAIRS]
#: Sets that are clustered whole, and most cells of each.
WHOLE = {
    "bmmc": "bmmc_neurips_cite", "TEA-seq": "pbmc_teaseq", "Liu": "pbmc_liu_covid_citeseq",
    "pancreas": "pancreas_cellhint_atlas", "Baron": "pancreas_baron_h1", "Baron, mouse": "pancreas_mouse_baron",
    "mouse cortex": "mop_mouse_10x_500genes", "PBMC, three chemistries": "pbmc_symphony_3chem",
    "Baron, four donors": "pancreas_human_baron_came", "STARmap": "mpfc_starmap",
}  # fmt: skip
WHOLE_CELLS, LEAST_CELLS = 5_000, 20
#: Whole sets by other tools (clusters_peers.py).
PEERS = OUT / "clusters_peers.csv"
#: Homogeneous types. The largest of Liu are not: among its CD4 memory cells are cytotoxic ones, and among these and its
#: monocytes dying ones (mitochondrial genes), both of which are found again by every split.
TYPES = {"bmmc": "CD14+ Mono", "TEA-seq": "T.CD4.Memory", "Liu": "B_Naive", "pancreas": "beta"}
#: Naive B cells of all donors are two clusters: patients' and healthy ones' (adjusted mutual information .86 and .77).
CONDITION = {"Liu": ("cond_group", "HC")}
NULLS = ("shuffled", "depth only", "one type")
#: Cells of a data set without structure.
NULL_CELLS = 1_000
PAGES = {
    "clusters": "Clusters at each method's own choice",
    "clusters_others": "The same on other sites, studies and technologies, and on shallow queries",
    "clusters_whole": "Clusters of whole sets",
    "clusters_null": "Clusters of cells without structure",
}
NOTE = (
    "`ari`, `nmi` and `ami` are those of the clusters that a method chooses (`resolution 1` is the default), "
    "`types_found` is the share of types with at least 20 cells whose best cluster has an F1 of .5 or more, "
    "`ceiling` is the best ARI of 39 resolutions on the same graph, which nobody knows without labels, `agreement` the "
    "adjusted Rand index of the clusters that the method finds in each of two halves of the counts, `seconds` those of "
    "the clustering alone."
)

Embedding = np.ndarray


def phenograph(cells: Embedding, seed: int) -> np.ndarray:
    """PhenoGraph with its own defaults: 30 neighbours, Leiden."""
    import phenograph

    with contextlib.redirect_stdout(io.StringIO()):
        return np.asarray(phenograph.cluster(cells, clustering_algo="leiden", seed=seed, n_jobs=1)[0])


def by_dice(cells: ad.AnnData, seed: int, batch_key: str | None = None) -> np.ndarray:
    dice.tl.cluster(cells, batch_key=batch_key, random_state=seed)
    return cells.obs["dice_cluster"].cat.codes.to_numpy()


def at_default(cells: Embedding, seed: int) -> np.ndarray:
    return communities(neighbor_graph(cells, 15), 1.0, random_state=seed)


#: What clusters the projection.
PROJECTED: dict[str, Callable[[Embedding, int], np.ndarray]] = {
    "PCA, resolution 1": at_default,
    "PhenoGraph": phenograph,
}
EMBEDDED = {"Harmony, resolution 1": "Harmony", "scVI, resolution 1": "scVI-10"}
OURS, GRAPH = "DICE cluster", "DICE graph, resolution 1"
#: Ours with ``batch_key="batch"``, where the cells are of several batches. On whole sets Harmony and scVI are given the
#: same column. On queries their batches are reference and query.
BATCHED = "DICE cluster, batches"
METHODS = [*PROJECTED, *EMBEDDED, GRAPH, OURS, BATCHED]
#: Methods of pages that do not have all of them.
USED = {"clusters_null": (OURS, *PROJECTED), "clusters_whole": (OURS, BATCHED)}


def cells_of(name: str, seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    """Reference and query."""
    if name not in SHALLOW:
        return real.cells_of(name, seed)
    reference, query = real.cells_of(SHALLOW[name], seed)
    part = split(recover(query.X), np.full((query.n_obs, 1), 0.25), np.random.default_rng([seed, 4]))[0]
    query.X = sparse.csr_matrix(part.expression)
    return reference, query


def scores(truth: np.ndarray, clusters: np.ndarray) -> dict[str, float]:
    """Agreement of clusters with types."""
    table = pd.crosstab(truth, clusters)
    f1 = 2 * table / np.add.outer(table.sum(1).to_numpy(), table.sum(0).to_numpy())
    large = (table.sum(1) >= LEAST_CELLS).to_numpy()
    return {
        "ari": dice.metrics.ari(truth, clusters),
        "nmi": dice.metrics.nmi(truth, clusters),
        "ami": float(adjusted_mutual_info_score(truth, clusters)),
        "types_found": float((f1.max(1).to_numpy() >= 0.5)[large].mean()),
    }


def whole(name: str, seed: int) -> ad.AnnData:
    """Return the labelled cells of a set, at most `WHOLE_CELLS` of them, in their variable genes."""
    adata, rng = load(WHOLE[name]), np.random.default_rng(seed)
    adata = adata[adata.obs["cell_type"] != "unassigned"]
    return variable_genes(adata[np.sort(rng.permutation(adata.n_obs)[:WHOLE_CELLS])].copy())


def run_whole(name: str, seed: int, methods: list[str]) -> Iterator[dict[str, object]]:
    """A set by itself, with a prior of its own, and so each half of its counts. Peers are in clusters_peers.py."""
    cells = whole(name, seed)
    truth = cells.obs["cell_type"].astype(str).to_numpy()
    learned, parts = _timed(learn, cells, seed)[1], halved(cells, seed)
    for part in parts:
        learn(part, seed)
    for method, clusters, seconds, agreement in by_ours(cells, parts, seed, methods):
        row = {"method": method, **scores(truth, clusters), "n_clusters": len(np.unique(clusters))}
        yield row | {"seconds": learned + seconds, "agreement": agreement}


def by_ours(
    cells: ad.AnnData, parts: list[ad.AnnData], seed: int, methods: list[str]
) -> Iterator[tuple[str, np.ndarray, float, float]]:
    """Method, clusters, seconds and the agreement of the clusters of two halves, without and with batches."""
    for method, batch_key in {OURS: None, BATCHED: "batch"}.items():
        if method in methods:
            clusters, seconds = _timed(partial(by_dice, batch_key=batch_key), cells, seed)
            agreement = adjusted_rand_score(*(by_dice(part, seed, batch_key) for part in parts))
            yield method, clusters, seconds, float(agreement)


def learn(cells: ad.AnnData, seed: int) -> None:
    """Train a prior on cells and denoise them."""
    dice.tl.train_prior(cells, training=TRAINING, random_state=seed)
    dice.tl.denoise(cells, random_state=seed)


def without_structure(kind: str, name: str, seed: int) -> ad.AnnData:
    """Cells that should be one cluster."""
    adata, rng = load(FILES[name]), np.random.default_rng(seed)
    if kind == "one type":
        own = adata.obs["cell_type"] == TYPES[name]
        if name in CONDITION:
            column, value = CONDITION[name]
            own &= adata.obs[column] == value
        own = rng.permutation(np.flatnonzero(own))
        cells = adata[own[: len(own) // 10]].copy()
        sc.pp.filter_genes(cells, min_cells=3)
        return variable_genes(cells)
    cells = variable_genes(adata[rng.permutation(adata.n_obs)[:NULL_CELLS]].copy())
    counts = recover(cells.X).counts.toarray().astype(np.int64)
    totals = counts.sum(1)
    if kind == "depth only":
        counts = rng.multinomial(totals, counts.sum(0) / counts.sum())
    else:
        depth = int(np.quantile(totals, 0.2))
        counts = np.array([rng.multivariate_hypergeometric(row, depth) for row in counts[totals >= depth]])
        counts = rng.permuted(counts, axis=0)
    made = ad.AnnData(sparse.csr_matrix(counts.astype(np.float32)), var=cells.var[[]])
    sc.pp.normalize_total(made, target_sum=1e4)
    sc.pp.log1p(made)
    return made


def halved(query: ad.AnnData, seed: int) -> list[ad.AnnData]:
    """The query by each of two halves of its counts."""
    seeds = np.random.default_rng([seed, 5]).integers(2**62, size=query.n_obs)
    pair = halves(recover(query.X), seeds, 1)[0]
    values = [sparse.csr_matrix(part.expression) for part in pair]
    return [ad.AnnData(value, obs=query.obs.copy(), var=query.var[[]]) for value in values]


def run(name: str, seed: int, methods: list[str]) -> Iterator[dict[str, object]]:
    """Rows of the wanted methods on one pair."""
    reference, query = cells_of(name, seed)
    truth = query.obs["cell_type"].astype(str).to_numpy()
    if query.obs["batch"].nunique() < 2:
        methods = [method for method in methods if method != BATCHED]
    if {OURS, BATCHED, GRAPH} & set(methods):
        dice.tl.train_prior(reference, training=TRAINING, random_state=seed)
        dice.tl.denoise(query, reference, n_samples=10, random_state=seed)

    def row(method: str, clusters: np.ndarray, seconds: float, graph: object = None, **more: float) -> dict:
        found = scores(truth, clusters)
        if graph is not None:
            found["ceiling"] = dice.metrics.leiden_sweep(graph, truth).ari.max()
        found |= {"n_clusters": len(np.unique(clusters)), "n_types": len(np.unique(truth)), **more, "seconds": seconds}
        return {"method": method, **found}

    two = halved(query, seed)
    for method, peer in (dict.fromkeys(PROJECTED, "PCA") | EMBEDDED).items():
        if method in methods:
            cluster, (cells, *parts) = PROJECTED.get(method, at_default), embedded(peer, reference, [query, *two], seed)
            clusters, seconds = _timed(cluster, cells, seed)
            agreement = adjusted_rand_score(*(cluster(part, seed) for part in parts)) if parts else np.nan
            yield row(method, clusters, seconds, cells if cluster is at_default else None, agreement=agreement)
    if GRAPH in methods:
        start = time.perf_counter()
        dice.tl.neighbors(query)
        graph = query.obsp["dice_neighbors_connectivities"]
        clusters = communities(as_graph(graph), 1.0, random_state=seed)
        yield row(GRAPH, clusters, time.perf_counter() - start, graph)
    if {OURS, BATCHED} & set(methods):
        for part in two:
            dice.tl.denoise(part, reference, n_samples=10, random_state=seed)
    for method, clusters, seconds, agreement in by_ours(query, two, seed, methods):
        yield row(method, clusters, seconds, query.obsp["dice_cluster_connectivities"], agreement=agreement)


def embedded(peer: str, reference: ad.AnnData, queries: list[ad.AnnData], seed: int) -> list[Embedding]:
    """The query and its halves by a peer, each beside the reference; scVI trains for a quarter of an hour: once."""
    return [embed(peer, reference, query, seed)[1] for query in (queries[:1] if "scVI" in peer else queries)]


def run_null(kind: str, name: str, seed: int, methods: list[str]) -> Iterator[dict[str, object]]:
    """Numbers of clusters where there should be one."""
    cells = without_structure(kind, name, seed)
    dice.tl.train_prior(cells, training=TRAINING, random_state=seed)
    start = time.perf_counter()
    dice.tl.cluster(cells, random_state=seed)
    n_clusters, seconds = cells.obs["dice_cluster"].nunique(), time.perf_counter() - start
    yield {"method": OURS, "n_clusters": n_clusters, "one": float(n_clusters == 1), "seconds": seconds}
    for method, cluster in PROJECTED.items():
        if method in methods:
            clusters, seconds = _timed(cluster, cells.obsm["X_dice_pca"], seed)
            n_clusters = len(np.unique(clusters))
            yield {"method": method, "n_clusters": n_clusters, "one": float(n_clusters == 1), "seconds": seconds}


def _timed(cluster: Callable[[Any, int], Any], cells: Any, seed: int) -> tuple[Any, float]:
    start = time.perf_counter()
    return cluster(cells, seed), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Cluster a query without labels, at each method's own choice.")
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--whole", nargs="*", default=list(WHOLE))
    parser.add_argument("--nulls", nargs="*", default=list(NULLS))
    parser.add_argument("--methods", nargs="*", default=[m for m in METHODS if not m.startswith("scVI")])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--null-seeds", type=int, default=20)
    arguments = parser.parse_args()
    prepare()
    able = set(installed(EMBEDDED.get(method, method) for method in arguments.methods))
    methods = [method for method in arguments.methods if EMBEDDED.get(method, method) in able]
    for page, jobs in {
        "clusters": [(name, seed) for seed in range(arguments.seeds) for name in arguments.data if name in FILES],
        "clusters_others": [
            (name, seed) for seed in range(arguments.seeds) for name in arguments.data if name not in FILES
        ],
        "clusters_whole": [(name, seed) for seed in range(arguments.seeds) for name in arguments.whole],
        "clusters_null": [
            (f"{kind}, {name}", seed)
            for seed in range(arguments.null_seeds) for kind in arguments.nulls for name in FILES
        ],
    }.items():  # fmt: skip
        work(page, jobs, methods)


def work(page: str, jobs: list[tuple[str, int]], methods: list[str]) -> None:
    """Every row of a page that is not there yet, written as soon as it is made."""
    known, done = resume(page, ["data", "seed", "method"])
    rows = pd.DataFrame(known, columns=None if known else ["data", "seed", "method"])
    for name, seed in jobs:
        wanted = [m for m in methods if (name, seed, m) not in done and m in USED.get(page, methods)]
        if not wanted or not (name in WHOLE or real.at_hand(SHALLOW.get(name, name.split(", ")[-1]))):
            continue
        if page == "clusters_null":
            found = run_null(*name.split(", "), seed, wanted)
        else:
            found = (run_whole if page == "clusters_whole" else run)(name, seed, wanted)
        for row in found:
            print(name, seed, {k: round(x, 3) if isinstance(x, float) else x for k, x in row.items()}, flush=True)
            rows = pd.concat([rows, pd.DataFrame([{"data": name, "seed": seed, **row}])], ignore_index=True)
        rows = rows.astype({"seed": int})
        show(page, rows)
    if len(rows):  # Once more: rows of several runs may have been put together.
        show(page, rows)


def show(page: str, rows: pd.DataFrame) -> None:
    beside = None
    if page == "clusters_whole" and PEERS.exists():
        beside = pd.read_csv(PEERS).rename(columns={"pair": "data"})
    note = NOTE if page != "clusters_null" else ""
    publish(page, rows, by=["method"], title=PAGES[page], note=note, beside=beside)


if __name__ == "__main__":
    main()
