"""The demonstration: cells of one study, annotated by the atlas of others, beside what one would do without."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, adjusted_rand_score, f1_score

import dice
from dice import _log
from dice._files import atomic, check_target
from dice._plot.demo import draw_demo
from dice.datasets._download import DownloadError

LABELS = "cell_type"
OURS, PLAIN = "dice.tl.annotate", "PCA, logistic regression, Leiden"


@dataclass(frozen=True)
class Demonstration:
    """What was compared on which cells, and where it is."""

    cells: str
    table: pd.DataFrame
    files: list[Path]


def run(folder: Path, *, random_state: int = 0) -> Demonstration:
    """Annotate a query by one call, compare, and write query, report and picture to `folder`."""
    files = [folder / name for name in ("query.h5ad", "report.html", "demo.png")]
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        check_target(file)
    cells, reference, query = cells_of(folder, random_state)
    start = time.perf_counter()
    dice.tl.annotate(query, reference, LABELS, report=files[1], random_state=random_state)
    seconds = {OURS: time.perf_counter() - start}
    start = time.perf_counter()
    labels, clusters = plainly(reference, query, random_state)
    seconds[PLAIN] = time.perf_counter() - start
    known = query.obs[LABELS].isin(reference.obs[LABELS].unique()).to_numpy()
    table = pd.DataFrame(
        {
            OURS: figures(query[known], query.obs[f"{LABELS}_dice"][known], query.obs["dice_cluster"][known])
            | covered(query[known]),
            PLAIN: figures(query[known], labels[known], clusters[known]),
        }
    ).T
    table["seconds"] = pd.Series(seconds)
    with atomic(files[0]) as draft:
        query.write_h5ad(draft)
    draw_demo(query, LABELS, files[2])
    return Demonstration(cells, table, files)


def cells_of(folder: Path, random_state: int) -> tuple[str, AnnData, AnnData]:
    """Two studies of the pancreas, or held-out blood cells that come with scanpy where pip reaches no registry."""
    try:
        reference, query = dice.datasets.pancreas(cache_dir=folder / "data")
    except DownloadError as error:
        _log.warn(f"{error} Blood cells that come with scanpy take the place of pancreas cells.")
        reference, query = hold_out(dice.datasets.pbmc68k(), random_state)
        return "a fifth of pbmc68k, labelled by the rest", reference, query
    return "Baron's pancreas cells (inDrop), labelled by an atlas of four other studies", reference, query


def hold_out(adata: AnnData, random_state: int, fraction: float = 0.2) -> tuple[AnnData, AnnData]:
    """Random reference and query cells."""
    query = np.random.default_rng(random_state).random(adata.n_obs) < fraction
    return adata[~query].copy(), adata[query].copy()


def plainly(reference: AnnData, query: AnnData, random_state: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels by logistic regression on PCs of the same genes, and scanpy's clusters at its default resolution."""
    genes = reference.var_names[reference.var["dice_genes"]]
    known, cells = (_normalised(adata)[:, genes].to_df().to_numpy() for adata in (reference, query))
    pca = PCA(n_components=50, random_state=random_state).fit(known)
    classifier = LogisticRegression(max_iter=1000).fit(pca.transform(known), reference.obs[LABELS].astype(str))
    own = _normalised(query)
    sc.pp.highly_variable_genes(own)
    sc.pp.pca(own, random_state=random_state)
    sc.pp.neighbors(own, random_state=random_state)
    sc.tl.leiden(own, flavor="igraph", n_iterations=2, random_state=random_state)
    return classifier.predict(pca.transform(cells)), own.obs["leiden"].to_numpy()


def _normalised(adata: AnnData) -> AnnData:
    """Log-normalised expression, from raw counts where `X` holds them."""
    if "dice_lognorm" in adata.layers:
        return AnnData(adata.layers["dice_lognorm"], obs=adata.obs[[]], var=adata.var[[]])
    return AnnData(adata.X, obs=adata.obs[[]], var=adata.var[[]])


def figures(query: AnnData, labels: object, clusters: object) -> dict[str, float]:
    """How well labels and clusters agree with what the study itself says of its cells."""
    truth = query.obs[LABELS].astype(str).to_numpy()
    given = np.asarray(labels).astype(str)
    return {
        "label accuracy": float(accuracy_score(truth, given)),
        "macro-F1": float(f1_score(truth, given, labels=np.unique(truth), average="macro", zero_division=0)),
        "cluster ARI": float(adjusted_rand_score(truth, np.asarray(clusters).astype(str))),
        "clusters": float(len(np.unique(np.asarray(clusters).astype(str)))),
    }


def covered(query: AnnData) -> dict[str, float]:
    """How often the 90 % sets hold the label, and how many labels they have."""
    found = dice.tl.evaluate(query, LABELS, protocol="labels").loc["all cells"]
    return {"set coverage": float(found["coverage"]), "set size": float(found["set_size"])}
