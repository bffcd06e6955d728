"""The demonstration: cells of one study, annotated by an atlas of others, beside a plain analysis."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, adjusted_rand_score, f1_score

import dice
from dice import _log
from dice._data import read
from dice._data.colors import Colors, read_colors
from dice._data.layout import layout
from dice._files import atomic, check_target
from dice._keys import AMBIGUOUS, CONFIDENT, UNLIKE, ClusterKeys, LabelKeys
from dice._plot import draw
from dice._plot.figure import PANEL, finish, name_groups, panels
from dice._types import Floats
from dice.datasets._download import DownloadError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEMO_LABELS = "cell_type"
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
    dice.tl.annotate(query, reference, DEMO_LABELS, report=files[1], random_state=random_state)
    seconds = {OURS: time.perf_counter() - start}
    start = time.perf_counter()
    labels, clusters = plainly(reference, query, random_state)
    seconds[PLAIN] = time.perf_counter() - start
    known = query.obs[DEMO_LABELS].isin(reference.obs[DEMO_LABELS].unique()).to_numpy()
    table = pd.DataFrame(
        {
            OURS: figures(query[known], query.obs[f"{DEMO_LABELS}_dice"][known], query.obs["dice_cluster"][known])
            | covered(query[known]),
            PLAIN: figures(query[known], labels[known], clusters[known]),
        }
    ).T
    table["seconds"] = pd.Series(seconds)
    with atomic(files[0]) as draft:
        query.write_h5ad(draft)
    draw_demo(query, DEMO_LABELS, files[2])
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
    classifier = LogisticRegression(max_iter=1000).fit(pca.transform(known), reference.obs[DEMO_LABELS].astype(str))
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
    truth = query.obs[DEMO_LABELS].astype(str).to_numpy()
    given = np.asarray(labels).astype(str)
    return {
        "label accuracy": float(accuracy_score(truth, given)),
        "macro-F1": float(f1_score(truth, given, labels=np.unique(truth), average="macro", zero_division=0)),
        "cluster ARI": float(adjusted_rand_score(truth, np.asarray(clusters).astype(str))),
        "clusters": float(len(np.unique(np.asarray(clusters).astype(str)))),
    }


def covered(query: AnnData) -> dict[str, float]:
    """How often the 90 % sets hold the label, and how many labels they have."""
    found = dice.tl.evaluate(query, DEMO_LABELS, protocol="labels").loc["all cells"]
    return {"set coverage": float(found["coverage"]), "set size": float(found["set_size"])}


#: How the cells of every status look: filled, hollow, and crossed out.
LOOK: dict[str, dict[str, Any]] = {
    CONFIDENT: {"marker": "o"},
    AMBIGUOUS: {"marker": "o", "facecolors": "white", "linewidths": 0.7},
    UNLIKE: {"marker": "x", "linewidths": 0.8},
}


def draw_demo(adata: AnnData, labels_key: str, path: Path) -> None:
    """Draw a query that :func:`dice.tl.annotate` labelled, with its own labels in the first two maps, to a file."""
    keys = LabelKeys(f"{labels_key}_dice")
    options: dict[str, Any] = {"n_neighbors": 15, "random_state": 0}
    before = layout(adata, "X_dice_pca", **options)
    after = layout(adata, "X_dice", neighbors_key=ClusterKeys().uns, **options)
    truth, found = read_colors(adata, labels_key), read_colors(adata, ClusterKeys().cluster)
    given = read_colors(adata, keys.label)
    # A type has the same colour whoever says so.
    shared = {name: (truth.labels or {}).get(name, color) for name, color in (given.labels or {}).items()}
    given = Colors(given.name, given.values, shared)
    status = read.column(adata, keys.status).astype(str).to_numpy()
    figure, axes = panels(4, ncols=2, size=(PANEL + 0.6, PANEL + 0.6), margin=1.6)
    _named(axes[0], before, truth, "before: PCA, the study's own cell types")
    _named(axes[1], after, truth, "after: DICE, the same cells")
    _named(axes[2], after, found, f"{len(found.groups)} clusters found, no resolution chosen")
    _doubted(axes[3], after, given, status)
    finish(figure, axes, show=None, save=path, return_fig=False)


def _named(ax: Axes, where: Floats, colors: Colors, title: str) -> None:
    draw.scatter_colored(ax, where, colors)
    draw.style_map(ax, title=title, n_cells=len(where))
    name_groups(ax, colors.groups, where)


def _doubted(ax: Axes, where: Floats, colors: Colors, status: Any) -> None:
    """Labels in their colours; how sure they are by the look of a point."""
    from matplotlib.lines import Line2D

    size, handles = 1.6 * draw.point_size(len(where)), []
    for zorder, (kind, look) in enumerate(LOOK.items(), start=2):
        own = status == kind
        share = f"{kind} ({own.mean():.0%})"
        hollow = "facecolors" in look
        handles.append(
            Line2D([], [], linestyle="", marker=look["marker"], color="black", label=share,
                   markerfacecolor="white" if hollow else "black")
        )  # fmt: skip
        for _, color, cells in colors.groups:
            shade = {"edgecolors": color} if hollow else {"color": color}
            draw.scatter(ax, where[cells & own], label=kind, size=size, zorder=zorder, **look, **shade)
    draw.style_map(ax, title="labels from the reference, and their doubt", n_cells=len(where))
    name_groups(ax, colors.groups, where)
    draw.add_legend(ax, handles)
