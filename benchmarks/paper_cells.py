"""The paper's experiments on real cells: its methods, its metrics beside ours, and the tables.

citeseq.py and neocortex.py say on which cells. Options of both:

* ``--n-latent``  numbers of latents, by default the paper's. PCA and DICE are repeated for each of them.
* ``--methods``   some of the methods. ``DICE literal`` is the paper's network and Algorithm 1 as printed: too slow
  without a GPU, and therefore not among the defaults.
* ``--stand-in``  make a small file of the same layout in a folder, run on it, and leave the tables there: a trial of
  the script, whose figures mean nothing.
* ``--steps``     stop training early, for the same purpose.

Every method sees the cells of reference and query; rows with ``labels`` or ``literal`` in their name trained on the
reference's labels. Figures are those of the query, by the authors' protocol (Louvain and cLISI on a UMAP; their NMI is
``nmi_max``) and on the embedding itself. ``knn_f1`` is the macro-F1 of 15 reference cells that vote.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import peers
import report
from real import vote

import dice

LABELS = "cell_type"
DICE, LITERAL = {"DICE": None, "DICE labels": LABELS}, "DICE literal"
METHODS = [*peers.PEERS, *DICE, LITERAL]
#: Methods that are repeated for every number of latents.
ALONG_K = ("PCA", *DICE)
FIGURES = ["ari", "clisi", "nmi_max", "v_measure", "silhouette", "nmi", "ari_fixed", "kmeans_ari", "knn_f1", "seconds"]
PROTOCOLS = {"paper": "The paper's protocol", "embedding": "On the embedding itself"}
Pair = tuple[ad.AnnData, ad.AnnData]


@dataclass(frozen=True)
class Cells:
    """Reference and query, and the same cells without corrections, for methods that take no negative values."""

    corrected: Pair
    plain: Pair


@dataclass(frozen=True)
class Experiment:
    """What distinguishes the two experiments.

    Parameters
    ----------
    name, title
        Name of the files, and heading of the page.
    n_latent
        The paper's number of latents.
    methods
        Methods that the data allow.
    load
        The data, or the stand-in that it makes in a folder.
    split
        Cells for a seed; fewer of them for a stand-in.
    note
        What the reader should know, with the printed numbers.
    """

    name: str
    title: str
    n_latent: int
    methods: list[str]
    load: Callable[[argparse.Namespace], object]
    split: Callable[[object, int, bool], Cells]
    note: str


def embed(
    cells: Cells, method: str, n_latent: int, seed: int, steps: int | None
) -> tuple[np.ndarray | None, np.ndarray]:
    """Embeddings of the reference and of the query."""
    if method in peers.PEERS:
        pair = cells.plain if method in ("ALRA", "NMF") else cells.corrected
        for adata in pair:
            adata.obsm.pop("PCA", None)
        # The paper takes 50 components of ALRA's matrix, and its own k for the others.
        peers.N_LATENT = 50 if method == "ALRA" else n_latent
        return peers.embed(method, *pair, seed)
    reference, query = cells.corrected
    training = dice.Training(calibration_fraction=0.0, max_steps=steps)
    options = {"n_latent": n_latent, "training": training, "random_state": seed}
    if method == LITERAL:
        dice.tl.train_prior(reference, preset="paper", labels_key=LABELS, **options)
        chains = dice.Gibbs(n_iterations=100, n_chains=10, average="chains")
        dice.tl.denoise(query, reference, rho=(5.0, 0.5), method=chains, likelihood=dice.Gaussian(1.0), shift=False)
        return None, query.obsm["X_dice"]
    dice.tl.train_prior(reference, labels_key=DICE[method], **options)
    dice.tl.denoise(query, reference, random_state=seed)
    dice.tl.denoise(reference, method=dice.Direct(uncertainty=False))
    return reference.obsm["X_dice"], query.obsm["X_dice"]


def scores(cells: Cells, embeddings: tuple[np.ndarray | None, np.ndarray], seed: int) -> Iterator[dict[str, object]]:
    """A row for each protocol."""
    known, truth = (adata.obs[LABELS].astype(str).to_numpy() for adata in cells.corrected)
    others, query = embeddings
    found = ad.AnnData(obs=pd.DataFrame({LABELS: truth}, index=map(str, range(len(truth)))), obsm={"X": query})
    for protocol in PROTOCOLS:
        row = dice.tl.evaluate(found, LABELS, use_rep="X", protocol=protocol, random_state=seed).iloc[0].to_dict()
        if protocol == "embedding" and others is not None:
            row["knn_f1"] = vote(others, known, query, truth)
        yield row | {"protocol": protocol}


def run(cells: Cells, method: str, n_latent: int, seed: int, steps: int | None) -> list[dict[str, object]]:
    start = time.perf_counter()
    embeddings = embed(cells, method, n_latent, seed, steps)
    about = {"seed": seed, "k": n_latent, "method": method}
    seconds = {"seconds": time.perf_counter() - start}
    return [about | row | seconds for row in scores(cells, embeddings, seed)]


def publish(experiment: Experiment, rows: list[dict[str, object]]) -> None:
    table = pd.DataFrame(rows)
    present = [name for name in FIGURES if name in table]
    tables = {
        title: report.summary(table[table["protocol"] == name], ["k", "method"], present)
        for name, title in PROTOCOLS.items()
    }
    note, umap = experiment.note, report.OUT / f"{experiment.name}_umap.png"
    if umap.exists():
        note += f"\n\n![Query before and after denoising, seed 0]({umap.name})"
    report.save(experiment.name, experiment.title, table, tables, note)


def picture(experiment: Experiment, cells: Cells) -> None:
    """The paper's UMAPs of the query before and after denoising."""
    dice.pl.comparison(cells.corrected[1], color=LABELS, save=report.OUT / f"{experiment.name}_umap.png")


def options(experiment: Experiment, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=experiment.title)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=experiment.methods)
    parser.add_argument("--n-latent", nargs="+", type=int, default=[experiment.n_latent])
    parser.add_argument("--stand-in", type=Path, metavar="FOLDER", help="a trial on a small file of the same layout")
    parser.add_argument("--steps", type=int, help="largest number of training steps, for a trial")
    return parser.parse_args(argv)


def main(experiment: Experiment, argv: Sequence[str] | None = None) -> None:
    """All methods for all seeds, row by row; goes on where an earlier run stopped."""
    arguments = options(experiment, argv)
    report.prepare()
    if arguments.stand_in:
        report.OUT = arguments.stand_in
        experiment = replace(experiment, title=f"{experiment.title}: a trial on a stand-in")
    try:
        data = experiment.load(arguments)
    except (OSError, ImportError) as error:
        sys.exit(str(error))
    methods = peers.installed(arguments.methods)
    rows, done = report.resume(experiment.name, ["seed", "k", "method"])
    wanted = [
        (k, method) for k in arguments.n_latent for method in methods if k == experiment.n_latent or method in ALONG_K
    ]
    for seed in range(arguments.seeds):
        missing = [(k, method) for k, method in wanted if (seed, k, method) not in done]
        cells = experiment.split(data, seed, bool(arguments.stand_in)) if missing else None
        for k, method in missing:
            rows += run(cells, method, k, seed, arguments.steps)
            print(seed, k, method, {name: round(rows[-1][name], 3) for name in ("ari", "clisi", "seconds")}, flush=True)
            if (seed, k, method) == (0, experiment.n_latent, "DICE"):
                picture(experiment, cells)
            publish(experiment, rows)
