"""The demonstration: a shallow query of another technology, annotated by an atlas, beside what a user would do instead.

    python benchmarks/demo.py --output dice_demo --seed 0

The query keeps a random tenth of its counts (`--depth`), as many as a shallow run has. Prints a table, and writes
query.h5ad, report.html, demo.png and demo.csv. With `--stages` it prints CPU seconds of the stages of `annotate`
instead, and writes stages.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import time
import warnings
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

import anndata as ad
import matplotlib as mpl
import numpy as np
import pandas as pd
import scanpy as sc
from matplotlib import patheffects
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, adjusted_rand_score, f1_score

import dice

LABELS = "cell_type"
OURS = "dice.tl.annotate"
DEPTH = 0.1
STATUS = {"confident": "#7fa8c4", "ambiguous": "#e69f00", "unlike the reference": "#b5305f"}
#: Groups of fewer cells have no name in the picture.
NAMED = 15


def cells_of(folder: Path, depth: float, seed: int) -> tuple[str, ad.AnnData, ad.AnnData]:
    """Two studies of the pancreas, or held-out blood cells that come with scanpy where pip reaches no registry."""
    try:
        reference, query = dice.datasets.pancreas(cache_dir=folder / "data")
    except OSError as error:
        print(f"{error} Blood cells that come with scanpy take the place of pancreas cells.")
        return "a fifth of pbmc68k, labelled by the rest", *hold_out(dice.datasets.pbmc68k(), seed)
    query = thinned(query, depth, seed)
    counts = np.median(np.asarray(query.X.sum(1)))
    text = f"Baron's pancreas cells (inDrop) with {counts:,.0f} counts each, labelled by an atlas of four other studies"
    return text, reference, query


def thinned(adata: ad.AnnData, depth: float, seed: int) -> ad.AnnData:
    """Cells that keep each of their counts with probability `depth`."""
    shallow = adata.copy()
    matrix = sparse.csr_matrix(adata.X)
    matrix.data = np.random.default_rng(seed).binomial(matrix.data.astype(np.int64), depth).astype(np.float32)
    matrix.eliminate_zeros()
    shallow.X = matrix
    return shallow


def hold_out(adata: ad.AnnData, seed: int, fraction: float = 0.2) -> tuple[ad.AnnData, ad.AnnData]:
    """Random reference and query cells."""
    query = np.random.default_rng(seed).random(adata.n_obs) < fraction
    return adata[~query].copy(), adata[query].copy()


def normalised(adata: ad.AnnData) -> ad.AnnData:
    """Log-normalised expression, as dice has found or made it."""
    layer = adata.layers.get("dice_lognorm", adata.X)
    return ad.AnnData(layer, obs=adata.obs[[]], var=adata.var[[]])


def by_genes(reference: ad.AnnData, query: ad.AnnData, seed: int) -> dict[str, Any]:
    """Labels by logistic regression on the genes that dice chose, as far as both studies name them alike."""
    known, cells = matrices(reference, query)
    return {"labels": classifier().fit(known, reference.obs[LABELS].astype(str)).predict(cells)}


def by_components(reference: ad.AnnData, query: ad.AnnData, seed: int) -> dict[str, Any]:
    """Labels by logistic regression on 50 principal components of these genes."""
    known, cells = matrices(reference, query)
    pca = PCA(n_components=50, random_state=seed).fit(known)
    found = classifier().fit(pca.transform(known), reference.obs[LABELS].astype(str))
    return {"labels": found.predict(pca.transform(cells))}


def by_celltypist(reference: ad.AnnData, query: ad.AnnData, seed: int) -> dict[str, Any]:
    """Labels by a CellTypist model of the reference."""
    import celltypist

    known, cells = normalised(reference), normalised(query)
    known.obs[LABELS] = reference.obs[LABELS].astype(str)
    model = celltypist.train(known, labels=LABELS, check_expression=False, n_jobs=2, max_iter=200)
    return {"labels": celltypist.annotate(cells, model=model).predicted_labels["predicted_labels"].to_numpy()}


def by_leiden(reference: ad.AnnData, query: ad.AnnData, seed: int) -> dict[str, Any]:
    """Clusters as scanpy finds them with its defaults."""
    cells = with_neighbours(query, seed)
    sc.tl.leiden(cells, flavor="igraph", n_iterations=2, random_state=seed)
    return {"clusters": cells.obs["leiden"].to_numpy()}


def with_neighbours(query: ad.AnnData, seed: int) -> ad.AnnData:
    """The cells with scanpy's own PCA and neighbours."""
    cells = normalised(query)
    sc.pp.highly_variable_genes(cells)
    sc.pp.pca(cells, random_state=seed)
    sc.pp.neighbors(cells, random_state=seed)
    return cells


METHODS: dict[str, Callable[[ad.AnnData, ad.AnnData, int], dict[str, Any]]] = {
    "logistic regression on genes": by_genes,
    "logistic regression on PCs": by_components,
    "CellTypist": by_celltypist,
    "Leiden, resolution 1": by_leiden,
}


def matrices(reference: ad.AnnData, query: ad.AnnData) -> list[np.ndarray]:
    # dice also knows older names of genes, which these methods do not.
    genes = reference.var_names[reference.var["dice_genes"]].intersection(query.var_names)
    return [normalised(adata)[:, genes].to_df().to_numpy() for adata in (reference, query)]


def classifier() -> LogisticRegression:
    return LogisticRegression(max_iter=1000)


def scores(query: ad.AnnData, known: np.ndarray, labels: Any = None, clusters: Any = None) -> dict[str, float]:
    """How well labels and clusters agree with what the study itself says of its cells, where the reference has it."""
    truth, found = query.obs[LABELS].astype(str).to_numpy()[known], {}
    if labels is not None:
        given = np.asarray(labels).astype(str)[known]
        found["label accuracy"] = accuracy_score(truth, given)
        found["macro-F1"] = f1_score(truth, given, labels=np.unique(truth), average="macro", zero_division=0)
    if clusters is not None:
        given = np.asarray(clusters).astype(str)[known]
        found |= {"cluster ARI": adjusted_rand_score(truth, given), "clusters": len(np.unique(given))}
    return found


def ours(reference: ad.AnnData, query: ad.AnnData, seed: int, report: Path) -> dict[str, Any]:
    dice.tl.annotate(query, reference, LABELS, report=report, random_state=seed)
    return {"labels": query.obs[f"{LABELS}_dice"], "clusters": query.obs["dice_cluster"]}


#: Functions of ``dice.tl._annotate`` that are stages of a call, and of the plots.
STAGES = {
    "_learn": "prior: genes, PCA, denoiser, classifiers of labels", "denoise": "denoising", "cluster": "clusters",
    "write_umap": "the map (UMAP)", "transfer_labels": "labels: five views, sets, votes", "novelty": "novelty",
    "report": "the page: second map, figures, genes",
}  # fmt: skip


def stages(reference: ad.AnnData, query: ad.AnnData, seed: int, report: Path) -> pd.DataFrame:
    """CPU seconds of every stage of a call, which are seconds on an idle core with OMP_NUM_THREADS=1."""
    seconds: dict[str, float] = {}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            found = function(*args, **kwargs)
            seconds[name] = seconds.get(name, 0.0) + time.process_time() - start
            return found

        return call

    start = time.process_time()
    importlib.import_module("umap")
    seconds["importing umap"] = time.process_time() - start
    with contextlib.ExitStack() as stack:
        for function, name in STAGES.items():
            where = importlib.import_module("dice.pl._report" if function == "report" else "dice.tl._annotate")
            stack.enter_context(mock.patch.object(where, function, timed(name, getattr(where, function))))
        timed("all of the call", ours)(reference, query, seed, report)
    seconds["all of the call"] += seconds["importing umap"]
    table = pd.DataFrame({"CPU seconds": seconds})
    return table.assign(share=table["CPU seconds"] / seconds["all of the call"])


def compared(reference: ad.AnnData, query: ad.AnnData, seed: int, report: Path) -> pd.DataFrame:
    """A row for every method that is installed."""
    known = query.obs[LABELS].isin(reference.obs[LABELS].unique()).to_numpy()
    table = {}
    for name, method in {OURS: ours, **METHODS}.items():
        start = time.perf_counter()
        try:
            found = method(reference, query, seed, *([report] if name == OURS else []))
        except (ImportError, TypeError) as error:
            # CellTypist 1.7 asks scikit-learn for an option that 1.8 dropped.
            print(f"{name} is left out: {error}.")
            continue
        table[name] = scores(query, known, **found) | {"seconds": time.perf_counter() - start}
    sets = dice.tl.evaluate(query[known], LABELS, protocol="labels").loc["all cells"]
    table[OURS] |= {"set coverage": sets["coverage"], "set size": sets["set_size"]}
    order = ["label accuracy", "macro-F1", "cluster ARI", "clusters", "set coverage", "set size", "seconds"]
    return pd.DataFrame(table).T[order]


def picture(query: ad.AnnData, table: pd.DataFrame, path: Path) -> None:
    """The study's own types before and after, the clusters, and how sure the labels are, in a row."""
    import matplotlib.pyplot as plt

    known = query.obs[f"{LABELS}_dice"].astype("category").cat.categories
    shades = dict(zip(known, cycle(mpl.colormaps["tab20" if len(known) > 10 else "tab10"].colors), strict=False))
    types, plain = query.obs[LABELS].astype(str), with_neighbours(query, 0)
    sc.tl.umap(plain, random_state=0)
    query.obsm["X_plain_umap"] = plain.obsm["X_umap"]
    clusters = query.obs["dice_cluster"].astype("category")
    status = query.obs[f"{LABELS}_dice_status"].astype(str)
    found = table.loc[OURS]
    panels = [
        (f"{np.median(np.asarray(query.X.sum(1))):,.0f} counts a cell: PCA, and the study's own types", "X_plain_umap",
         types, shades, True),
        (f"the same cells denoised; labels {found['label accuracy']:.0%} right", "X_dice_umap", types, shades, True),
        (f"{clusters.nunique()} clusters, no resolution chosen (ARI {found['cluster ARI']:.2f})", "X_dice_umap",
         clusters.astype(str), dict(zip(clusters.cat.categories, query.uns["dice_cluster_colors"], strict=True)), True),
        ("which labels to believe", "X_dice_umap", status, STATUS, False),
    ]  # fmt: skip
    figure, axes = plt.subplots(1, 4, figsize=(17, 4.3), layout="constrained")
    for ax, (title, rep, values, colors, named) in zip(axes, panels, strict=True):
        where = query.obsm[rep]
        ax.scatter(*where.T, s=5, linewidths=0, c=[colors.get(value, "#c8c8c8") for value in values], rasterized=True)
        for value in colors if named else ():
            own = where[(values == value).to_numpy()]
            if len(own) >= NAMED:
                outline = [patheffects.withStroke(linewidth=2.5, foreground="white")]
                middle = own[np.square(own - np.median(own, axis=0)).sum(1).argmin()]
                ax.text(*middle, value, ha="center", va="center", fontsize=9, weight="bold", path_effects=outline)
        if not named:
            dots = [ax.scatter([], [], s=25, c=color, label=f"{name} ({(values == name).mean():.0%})")
                    for name, color in colors.items() if (values == name).any()]  # fmt: skip
            ax.legend(handles=dots, frameon=False, loc="lower center", bbox_to_anchor=(0.5, -0.09), ncols=len(dots))
        ax.set_title(title, fontsize=10.5)
        ax.set_axis_off()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("dice_demo"), help="folder to write to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--depth", type=float, default=DEPTH, help="share of the query's counts that is kept")
    parser.add_argument("--stages", action="store_true", help="print where the time of annotate goes, and nothing else")
    args = parser.parse_args()
    mpl.use("Agg")
    args.output.mkdir(parents=True, exist_ok=True)
    cells, reference, query = cells_of(args.output, args.depth, args.seed)
    if args.stages:
        table = stages(reference, query, args.seed, args.output / "report.html")
        table.round(2).to_csv(args.output / "stages.csv", index_label="stage")
        print(table.round(2).to_string())
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        table = compared(reference, query, args.seed, args.output / "report.html")
    picture(query, table, args.output / "demo.png")
    query.write_h5ad(args.output / "query.h5ad")
    table.round(3).to_csv(args.output / "demo.csv", index_label="method")
    shown = table.to_string(na_rep="-", float_format=lambda x: f"{x:.3f}".removesuffix(".000"))
    print(f"\n{cells}\n\n{shown}\n\nWritten: {', '.join(sorted(str(path) for path in args.output.iterdir()))}")


if __name__ == "__main__":
    main()
