"""Data sets that nothing was tuned to: labels of a query and clusters without labels, for the final table alone.

    python benchmarks/unseen.py [--seeds 1] [--data ...]

Eight public sets (`unseen_sets.py`), first looked at when this table was made: PBMCs with control cells as reference
and cells stimulated with interferon as query (at most 4,000 each, another sample for every seed), 10x lung cells of one
study as reference and of another as query, and six sets with a random fifth as query: mouse myeloid progenitors (Paul),
mouse cortex (Zeisel), cord blood with mouse cells among them (CITE-seq, 500 genes), and by full-length reads cell lines
(Li), cell lines with fetal cortex (Pollen) and lung tumours (Maynard). Nothing in dice may be chosen by these figures.
Labels of Paul are clusters of the study itself. Sets without a row of DICE have not been looked at, and are not shown.

Labels: all methods see the same 2,000 variable genes of the reference. `accuracy` and `macro_f1` are those of the most
likely label, over query cells whose type the reference has; those of other tools, with their own defaults, are in
unseen_peers.csv (`transfer_peers.py --unseen`). `coverage` is the share of 90 % sets of DICE that hold the
label, `set_size` the labels in them.

Clusters: each method at its own choice, Leiden on PCA at its default resolution 1, against the labels. `types_found` is
the share of types with at least 20 cells whose best cluster has an F1 of .5 or more. Clustered is the query; Li and
Pollen, whose queries are too small, are clustered whole, with a prior of their own. Pollen and Maynard have transcripts
per million, and Li has fractions of counts: noise cannot be measured there, and is assumed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import anndata as ad
import numpy as np
import pandas as pd
from clusters import PROJECTED, TRAINING
from clusters import scores as of_clusters
from data import hold_out, load, variable_genes, without_single_cells
from peers import installed
from report import OUT, repeat, save, summary
from transfer import METHODS, by_dice, scores

import dice

KEY = "cell_type"
CLASSIFIERS = ("LR on genes", "LR on PCA")
MAX_CELLS = 4000
#: Labels by other tools, which need environments of their own (transfer_peers.py).
PEERS = OUT / "unseen_peers.csv"
LABELS = ["accuracy", "macro_f1", "coverage", "set_size", "seconds"]
CLUSTERS = ["ari", "nmi", "ami", "types_found", "n_clusters", "n_types", "seconds"]


@dataclass(frozen=True)
class Unseen:
    """A file, and the column whose two values are reference and query; whether it has counts, or is clustered whole."""

    file: str
    column: str | None = None
    sides: tuple[str, str] = ("", "")
    counts: bool = True
    whole: bool = False


SETS = {
    "PBMC, stimulated": Unseen("pbmc_stimulated", "condition", ("control", "stimulated")),
    "Paul": Unseen("paul_2015"),
    "Li": Unseen("li_2017", counts=False, whole=True),
    "Pollen": Unseen("pollen_2014", counts=False, whole=True),
    "lung, two studies": Unseen("lung_two_studies", "study", ("Tabula Sapiens", "Travaglini")),
    "Maynard": Unseen("maynard_2020", counts=False),
    "Zeisel": Unseen("zeisel_2015"),
    "cord blood": Unseen("cord_blood_citeseq"),
}


def main() -> None:
    show(repeat("unseen", SETS, run, show))


def show(rows: pd.DataFrame) -> None:
    tables = {}
    for task, figures in {"labels": LABELS, "clusters": CLUSTERS}.items():
        own = rows[rows["task"] == task]
        if task == "labels" and PEERS.exists():
            peers = pd.read_csv(PEERS).rename(columns={"pair": "data"})
            own = pd.concat([own, peers[peers["data"].isin(own["data"])]])
        # A mean over fewer sets could not be compared.
        whole = own[own.groupby(["method", "seed"])["data"].transform("nunique") == own["data"].nunique()]
        means = whole.groupby(["method", "seed"], sort=False)[figures].mean().reset_index()
        parts = [own, means.assign(data=f"mean over {own['data'].nunique()} sets")]
        tables[task.capitalize()] = summary(pd.concat(parts), ["data", "method"], figures)
    save("unseen", "Data sets that nothing was tuned to", rows, tables, "\n\n".join(__doc__.strip().split("\n\n")[2:]))


def run(name: str, seed: int) -> Iterator[dict[str, object]]:
    own = SETS[name]
    reference, query = split(own, seed)
    genes, known = in_variable_genes(reference, query)
    truth = query.obs[KEY].astype(str).to_numpy()
    rows = [by_dice(genes.copy(), known.copy(), KEY, seed)]
    for method in CLASSIFIERS:
        start = time.perf_counter()
        guess = METHODS[method](genes, known, KEY, seed)
        rows.append({"method": method, "seconds": time.perf_counter() - start} | scores(truth, guess))
    for task, found in (("labels", rows), ("clusters", clustered(own, reference, query, seed))):
        for row in found:
            print(name, seed, row, flush=True)
            yield {"task": task} | row


def labelled(name: str, seed: int) -> tuple[ad.AnnData, ad.AnnData, str]:
    """Reference and query as every method sees them, and the column of labels."""
    return *in_variable_genes(*split(SETS[name], seed)), KEY


def in_variable_genes(reference: ad.AnnData, query: ad.AnnData) -> tuple[ad.AnnData, ad.AnnData]:
    genes = variable_genes(reference.copy(), 2000)
    return genes, query[:, genes.var_names].copy()


def split(own: Unseen, seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    """Reference and query, without types that the reference has no two cells of."""
    adata, rng = load(own.file), np.random.default_rng(seed)
    if own.column is None:
        reference, query = hold_out(adata, adata.n_obs // 5, seed)
    else:
        sides = [np.flatnonzero(adata.obs[own.column] == value) for value in own.sides]
        reference, query = (adata[np.sort(rng.permutation(side)[:MAX_CELLS])].copy() for side in sides)
    reference = without_single_cells(reference, KEY).copy()
    query = query[query.obs[KEY].isin(reference.obs[KEY].unique())].copy()
    for side in (reference, query):
        side.obs[KEY] = side.obs[KEY].astype(str).astype("category")
    return reference, query


def clustered(own: Unseen, reference: ad.AnnData, query: ad.AnnData, seed: int) -> Iterator[dict[str, object]]:
    """Rows of clusters without labels."""
    cells = load(own.file) if own.whole else query
    reference = variable_genes(cells if own.whole else reference)
    cells = reference if own.whole else cells[:, reference.var_names].copy()
    truth = cells.obs[KEY].astype(str).to_numpy()
    # With measured noise no clusters depend on the diffusion prior; elsewhere it is trained as by default.
    training = TRAINING if own.counts else dice.Training(calibration_fraction=0.0)
    dice.tl.train_prior(reference, training=training, random_state=seed)
    dice.tl.denoise(cells, reference, random_state=seed)

    def row(method: str, clusters: np.ndarray, seconds: float) -> dict[str, object]:
        sizes = {"n_clusters": len(np.unique(clusters)), "n_types": len(np.unique(truth))}
        return {"method": method} | of_clusters(truth, clusters) | sizes | {"seconds": seconds}

    start = time.perf_counter()
    dice.tl.cluster(cells, reference, random_state=seed)
    yield row("DICE cluster", cells.obs["dice_cluster"].astype(str).to_numpy(), time.perf_counter() - start)
    for method in installed(PROJECTED):
        start = time.perf_counter()
        clusters = PROJECTED[method](cells.obsm["X_dice_pca"], seed)
        yield row(method, clusters, time.perf_counter() - start)


if __name__ == "__main__":
    main()
