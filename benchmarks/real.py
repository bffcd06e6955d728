"""Real data: DICE beside other label-free embeddings, by clustering, mixing of types and label transfer.

Reference and query are a random split (bmmc, TEA-seq, Liu, pancreas; a fifth of at most 5,000 cells is the query), one
site of bmmc against the others, or a pair from two technologies. Every method sees the cells of both and no label.
Figures are those of the query:

* ``ari``, ``nmi``, ``v``   Leiden clusters against labels, best over the paper's 39 resolutions,
* ``ari_1``, ``nmi_1``      the same at the default resolution, where nobody knows the labels,
* ``stability``             ARI of clusters (resolution 1) of random four fifths of the cells with those of all,
* ``clisi``, ``silhouette`` of the embedding (cosine), ``knn_f1`` macro-F1 of a 15-NN vote of the reference.

Rows named ``graph`` cluster the graph averaged over ten posterior samples (``dice.tl.neighbors``). ``PCA noise graph``
is its control: the projection with isotropic noise added ten times, averaged in the same way.

    make bench-real

writes docs/benchmarks/real (random splits) and real_pairs (.csv and .md) row by row, and goes on where an earlier run
stopped. Without the folder of data, the pancreas sets come out of public wheels, and the others are named and left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import anndata as ad
import compare
import numpy as np
import pandas as pd
import peers
from data import FILES, Missing, find, load, pair, variable_genes
from peers import PEERS, embed, installed
from report import OUT, markdown, prepare, publish
from shifts import PAIRS as SHIFTS
from shifts import pair_of
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier

import dice
from dice._clusters.partition import communities
from dice._data.graph import neighbor_graph

#: What rows named DICE differ in: rho in latent scales (None: default).
VARIANTS: dict[str, float | None] = {"DICE": None, "DICE rho 0.2": 0.2}
SITES = ("site1", "site2", "site3", "site4")
PAIRS = ("cells -> nuclei", "atlas -> Baron", "Baron -> atlas")
CONTROL = "PCA noise graph"
DICE = [f"{name}{graph}" for name in VARIANTS for graph in ("", " graph")]
METHODS = [*PEERS, CONTROL, *DICE]
NOTE = (
    "`graph` rows cluster the graph averaged over ten posterior samples, `rho 0.2` rows assume 0.2 latent scales of "
    "noise on top of the measured one. "
    "Leiden at the best resolution (`ari`, `nmi`, `v`) and the default one (`ari_1`, `nmi_1`); `stability` under "
    "subsampling of cells. Rows with fewer seeds than the others are from a call of their own (`--methods`, `--seeds`, "
    "`--scvi-epochs`)."
)
PAGES = {"real": "Real data", "real_pairs": "Real data from other sites, studies and technologies"}


def at_hand(name: str) -> bool:
    """Whether the files of a data set can be had; says what is missing."""
    files = [cells.file for cells in SHIFTS[name]] if name in SHIFTS else [FILES.get(name, FILES["bmmc"])]
    try:
        for file in files:
            find(file)
    except Missing as missing:
        print(f"{name} is left out: {missing}", flush=True)
        return False
    return True


def cells_of(name: str, seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    """Reference and query of a data set; for the sites of bmmc the seed is the site."""
    if name in FILES:
        return pair(name, seed)
    if name != "bmmc by site":
        return pair_of(name, seed)
    adata = load(FILES["bmmc"])
    own = (adata.obs["site"] == SITES[seed % len(SITES)]).to_numpy()
    reference = variable_genes(adata[~own].copy())
    return reference, adata[own][:, reference.var_names].copy()


def figures(
    embedding: np.ndarray | None, graph: Callable[[np.ndarray], object], truth: np.ndarray, seed: int
) -> dict[str, float]:
    """All figures of one method; `graph` gives what Leiden clusters for some of the cells."""
    cells = np.arange(len(truth))
    whole = graph(cells)
    sweep = dice.metrics.leiden_sweep(whole, truth)
    default = sweep[sweep.resolution == 1.0].iloc[0]
    found = {
        "ari": sweep.ari.max(),
        "nmi": sweep.nmi.max(),
        "v": sweep.v_measure.max(),
        "ari_1": default.ari,
        "nmi_1": default.nmi,
        "stability": np.mean(list(_stability(graph, _leiden(whole), seed))),
    }
    if embedding is not None:
        found |= {
            "clisi": dice.metrics.clisi(embedding, truth),
            "silhouette": dice.metrics.silhouette(embedding, truth),
        }
    return {name: float(value) for name, value in found.items()}


def _leiden(cells: object) -> np.ndarray:
    """Leiden clusters of an embedding, or of a graph, with scanpy's defaults."""
    return communities(neighbor_graph(cells, 15), 1.0)


def _stability(graph: Callable[[np.ndarray], object], clusters: np.ndarray, seed: int) -> Iterator[float]:
    for repeat in range(2):
        rng = np.random.default_rng([seed, repeat])
        some = np.sort(rng.permutation(len(clusters))[: len(clusters) * 4 // 5])
        yield dice.metrics.ari(clusters[some], _leiden(graph(some)))


def averaged(samples: np.ndarray) -> Callable[[np.ndarray], object]:
    """The averaged graph of some of the cells, from the samples (n, s, k) of all."""

    def graph(cells: np.ndarray) -> object:
        some = ad.AnnData(obsm={"X_dice_samples": samples[cells]}, shape=(len(cells), 0))
        dice.tl.neighbors(some, n_samples=samples.shape[1])
        return some.obsp["dice_neighbors_connectivities"]

    return graph


def vote(reference: np.ndarray, known: np.ndarray, query: np.ndarray, truth: np.ndarray) -> float:
    """Macro-F1 of 15 nearest reference cells voting on the label of every query cell."""
    guess = KNeighborsClassifier(15).fit(reference, known).predict(query)
    return float(f1_score(truth, guess, average="macro", labels=np.unique(truth)))


def row_name(method: str) -> str:
    """What the tables call a method: a shortened scVI says so."""
    shortened = peers.scvi_epochs and method.startswith("scVI")
    return f"{method}, {peers.scvi_epochs} epochs" if shortened else method


def run(name: str, seed: int, methods: list[str]) -> Iterator[dict[str, object]]:
    """Rows of the wanted methods on one pair."""
    reference, query = cells_of(name, seed)
    known, truth = (a.obs["cell_type"].astype(str).to_numpy() for a in (reference, query))

    def embedded(cells: np.ndarray, others: np.ndarray) -> dict[str, float]:
        found = figures(cells, lambda some: cells[some], truth, seed)
        return found | {"knn_f1": vote(others, known, cells, truth)}

    for method in (m for m in PEERS if m in methods):
        start = time.perf_counter()
        others, cells = embed(method, reference, query, seed)
        seconds = time.perf_counter() - start
        yield {"method": row_name(method), **embedded(cells, others), "seconds": seconds}
    if CONTROL in methods:
        graph = averaged(with_noise(*embed("PCA", reference, query, seed), seed))
        yield {"method": CONTROL, **figures(None, graph, truth, seed)}
    trained = False
    for name_of, rho in VARIANTS.items():
        if not {name_of, f"{name_of} graph"} & set(methods):
            continue
        start = time.perf_counter()
        if not trained:
            train(reference, seed)
            trained = True
        denoise(reference, query, rho, seed)
        seconds = time.perf_counter() - start
        if name_of in methods:
            yield {"method": name_of, **embedded(query.obsm["X_dice"], reference.obsm["X_dice"]), "seconds": seconds}
        if f"{name_of} graph" in methods:
            graph = averaged(query.obsm["X_dice_samples"])
            yield {"method": f"{name_of} graph", **figures(None, graph, truth, seed), "seconds": seconds}


def with_noise(reference: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
    """The projection of the query (n, 10, k) with noise of 0.3 of the latent scale."""
    noise = np.random.default_rng(seed).normal(size=(len(query), 10, query.shape[1]))
    return (query[:, None] + 0.3 * np.sqrt(reference.var(0).mean()) * noise).astype(np.float32)


def train(reference: ad.AnnData, seed: int) -> None:
    """A prior with its defaults; no cells are kept from it for prediction sets."""
    dice.tl.train_prior(reference, training=dice.Training(calibration_fraction=0.0), random_state=seed)


def denoise(reference: ad.AnnData, query: ad.AnnData, rho: float | None, seed: int) -> None:
    """Query and reference under the prior; rho in latent scales."""
    assumed = "auto" if rho is None else rho * dice.Prior.from_anndata(reference).latent_scale
    dice.tl.denoise(query, reference, rho=assumed, n_samples=10, random_state=seed)
    dice.tl.denoise(reference, rho=assumed, method=dice.Direct(uncertainty=False))


def differences(rows: pd.DataFrame) -> str:
    """Paired differences to PCA on the same cells, with 95 % intervals over seeds of the mean over sets."""
    names = ["knn_f1", "clisi", "nmi", "ari", "nmi_1", "ari_1", "stability"]
    if "PCA" not in set(rows.method):
        return ""
    ours = [method for method in rows.method.unique() if method.startswith("DICE")]
    found = [compare.paired(rows, method, ["PCA"], names).assign(to=method) for method in ours]
    table = pd.concat(found).rename(columns={"to": "method"})[["method", *names]] if found else None
    return "" if table is None else f"## Paired differences to PCA\n\n{markdown(table)}"


def ranks(rows: pd.DataFrame, heading: str) -> str:
    """Mean rank over data sets and figures."""
    return f"## {heading}\n\n{markdown(compare.ranks(rows, ['ari', 'nmi', 'ari_1', 'nmi_1', 'stability']))}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare embeddings of a query on real data.")
    parser.add_argument("--data", nargs="*", default=[*FILES, "bmmc by site", *PAIRS])
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="to share the seeds between several runs")
    parser.add_argument("--scvi-epochs", type=int, help="instead of scVI's own choice, said in its rows")
    arguments = parser.parse_args()
    peers.scvi_epochs = arguments.scvi_epochs
    prepare()
    methods = installed(arguments.methods)
    paths = [path for path in (OUT / f"{page}.csv" for page in PAGES) if path.exists()]
    rows = pd.concat([pd.DataFrame({"data": [], "seed": [], "method": []}), *map(pd.read_csv, paths)])
    rows = rows.astype({"seed": int})
    available = [name for name in arguments.data if at_hand(name)]
    for seed in range(arguments.first_seed, arguments.seeds):
        for name in available:
            done = set(rows[(rows.data == name) & (rows.seed == seed)].method)
            for row in run(name, seed, [m for m in methods if row_name(m) not in done]):
                print(name, seed, {k: round(x, 3) if isinstance(x, float) else x for k, x in row.items()}, flush=True)
                rows = pd.concat([rows, pd.DataFrame([{"data": name, "seed": seed, **row}])], ignore_index=True)
                show(rows)
    show(rows)


def show(rows: pd.DataFrame) -> None:
    """Write the tables; also where rows of several runs were put together and nothing was left to do."""
    for (page, title), own in zip(PAGES.items(), (rows.data.isin(FILES), ~rows.data.isin(FILES)), strict=True):
        if own.any():
            parts = [NOTE, differences(rows[own]), ranks(rows[own], "Mean rank")]
            parts += [ranks(rows, f"Mean rank on all {rows.data.nunique()} data sets")]
            publish(page, rows[own], by=["method"], title=title, note="\n\n".join(parts))


if __name__ == "__main__":
    main()
