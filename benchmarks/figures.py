"""Draw every figure of docs/figures.md: those of the paper with its own simulations, and one of every other plot.

Real cells are TEA-seq PBMCs and two studies of pancreas from the folder of the shared data sets: the paper's own data
have to be downloaded (``citeseq_cells.py``, ``neocortex_cells.py``), and take the same calls.

    python benchmarks/figures.py [name ...]
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import anndata as ad
import data
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy as sc
import trial
from matplotlib.figure import Figure
from PIL import Image
from report import prepare

import dice

FOLDER = trial.FOLDER or Path(__file__).parents[1] / "docs" / "_static" / "figures"
DPI = 80


# ---- figures of the paper


def setup(number: int) -> Figure:
    reference, query = dice.datasets.synthetic(number)
    dice.tl.train_prior(reference, n_latent=15, scale=False)
    dice.tl.denoise(query, reference, rho=30)
    return dice.pl.comparison(query, color="cell_type", return_fig=True)


def setup_1() -> Figure:
    return setup(1)


def setup_2() -> Figure:
    return setup(2)


def setup_3() -> Figure:
    return setup(3)


def setup_4() -> Figure:
    return setup(4)


@cache
def two_clusters() -> tuple[ad.AnnData, ad.AnnData]:
    """Setup 1 with a trained prior, and two cells without noise: the centre of Cluster 2, and the midpoint."""
    reference, _ = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False)
    means = reference.uns["dice_synthetic"]["means"]
    latents = np.stack([means[1], means.mean(0)])
    names = ["centre of Cluster 2", "midpoint of the clusters"]
    cells = ad.AnnData(
        (latents @ reference.varm["V_true"].T).astype(np.float32), pd.DataFrame(index=names), reference.var[[]]
    )
    return reference, cells


def samples() -> Figure:
    reference, cells = two_clusters()
    dice.tl.denoise(cells, reference, rho=0.1, n_samples=500, check=False, likelihood=dice.Gaussian(1.0))
    return dice.pl.posterior(cells, [0, 1], reference=reference, return_fig=True)


def samples_rho() -> Figure:
    reference, cells = two_clusters()
    found = []
    for rho in (0.1, 0.5, 1, 5, 10, 20):
        cell = cells[:1].copy()
        dice.tl.denoise(cell, reference, rho=rho, n_samples=500, check=False, likelihood=dice.Gaussian(1.0))
        cell.obs_names = [f"rho = {rho}"]
        found.append(cell)
    return dice.pl.posterior(ad.concat(found), range(6), reference=reference, return_fig=True)


def fewer_clusters() -> Figure:
    return mismatch("fewer")


def more_clusters() -> Figure:
    return mismatch("more")


def mismatch(kind: str) -> Figure:
    reference, query = dice.datasets.mismatch(kind, n_reference=2000, n_query=500)
    dice.tl.train_prior(reference, n_latent=15, scale=False)
    return dice.pl.rho(query, reference, rhos=[1, 8, 20], color="cell_type", return_fig=True)


@cache
def teaseq() -> tuple[ad.AnnData, ad.AnnData]:
    reference, query = data.pair("TEA-seq", 0)
    dice.tl.train_prior(reference, labels_key="cell_type")
    dice.tl.denoise(query, reference, n_samples=20)
    return reference, query


def held_out() -> Figure:
    return dice.pl.comparison(teaseq()[1], color="cell_type", return_fig=True)


def other_study() -> Figure:
    """Baron's pancreas cells in the light of an atlas of other studies."""
    reference, query = data.load("pancreas_cellhint_atlas"), data.load("pancreas_baron_h1")
    genes = dice.pp.shared_genes(reference, query)
    reference, query = reference[:, genes].copy(), query[:, genes].copy()
    dice.tl.train_prior(reference, labels_key="cell_type")
    dice.tl.denoise(query, reference)
    return dice.pl.comparison(query, color="cell_type", return_fig=True)


def latents() -> Figure:
    """Adjusted Rand index by the number of latents."""
    reference, query = (cells.copy() for cells in teaseq())
    rows = []
    for k in (5, 10, 20, 50, 100):
        dice.tl.train_prior(reference, labels_key="cell_type", n_latent=k)
        dice.tl.denoise(query, reference)
        rows.append(dice.tl.evaluate(query, "cell_type", use_rep="X_dice"))
    table = pd.concat(rows).set_index(pd.Index([5, 10, 20, 50, 100], name="latents"))
    axes = table[["ari", "silhouette", "clisi"]].plot(subplots=True, layout=(1, 3), figsize=(9, 2.8), marker="o")
    return axes[0, 0].figure


# ---- one of every other plot


def on_reference() -> Figure:
    reference, query = teaseq()
    return dice.pl.comparison(query, color="cell_type", reference=reference, return_fig=True)


def uncertainty() -> Figure:
    return dice.pl.distribution(teaseq()[1], groupby="cell_type", return_fig=True)


def novelty() -> Figure:
    """The query's B cells are unknown to a reference without them."""
    reference, query = (cells.copy() for cells in teaseq())
    reference = reference[~reference.obs["cell_type"].str.startswith("B.")].copy()
    dice.tl.train_prior(reference, labels_key="cell_type")
    dice.tl.denoise(query, reference)
    dice.tl.novelty(query, reference, groupby="cell_type")
    return dice.pl.distribution(query, "dice_novelty", return_fig=True)


def prior() -> Figure:
    return dice.pl.prior(teaseq()[0], return_fig=True)


def measured_noise() -> Figure:
    """Cells measured twice, by halves of their counts, before and after the measurement."""
    reference, query = data.pair("bmmc", 0)
    dice.tl.train_prior(reference)
    cells = query[:300]
    rng, halves = np.random.default_rng(0), []
    counts = cells.layers["counts"].astype(np.int64).toarray()
    first = rng.binomial(counts, 0.5)
    for name, part in (("a", first), ("b", counts - first)):
        half = ad.AnnData(part.astype(np.float32), obs=cells.obs.copy(), var=cells.var.copy())
        half.obs_names = [f"{cell}-{name}" for cell in half.obs_names]
        sc.pp.normalize_total(half, target_sum=1e4)
        sc.pp.log1p(half)
        halves.append(half)
    both = ad.concat(halves)
    dice.tl.denoise(both, reference)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    for ax, key, title in zip(axes, ("X_dice_pca", "X_dice"), ("two measurements", "after"), strict=True):
        place = both.obsm[key][:, 3:5]
        a, b = place[:300], place[300:]
        ax.plot(*np.stack([a, b]).transpose(2, 0, 1), color="0.6", lw=0.5, zorder=1)
        codes = pd.Categorical(both.obs["cell_type"]).codes
        ax.scatter(*place.T, c=codes, cmap="tab20", s=6, zorder=2)
        away = both.obsm[key][:300] - both.obsm[key][300:]
        share = np.square(away).sum(1).mean() / (2 * both.obsm[key].var(0).sum())
        ax.set(
            title=f"{title}: {share:.0%} of the variance between halves",
            xlabel="latent 4",
            ylabel="latent 5",
            xlim=(-14, 14),
            ylim=(-14, 14),
        )
    return figure


def depth_path() -> Figure:
    """One cell as its depth grows: projections of nested shares of its counts, and their posterior."""
    reference, query = data.pair("bmmc", 0)
    dice.tl.train_prior(reference)
    dice.tl.denoise(reference, method=dice.Direct(uncertainty=False))
    totals = np.asarray(query.layers["counts"].sum(1)).ravel()
    chosen = np.flatnonzero((query.obs["cell_type"] == "CD14+ Mono").to_numpy())
    cell = chosen[np.argsort(totals[chosen])[-len(chosen) // 10]]
    shares, rng = np.geomspace(0.02, 1, 12), np.random.default_rng(0)
    # A molecule belongs to all shares above a random number of its own, so that shallow parts lie within deep ones.
    counts = query.layers["counts"][cell].astype(np.int64).toarray().ravel()
    genes, when = np.repeat(np.arange(len(counts)), counts), rng.random(counts.sum())
    parts = np.stack([np.bincount(genes[when <= share], minlength=len(counts)) for share in shares])
    path = ad.AnnData(parts.astype(np.float32), var=query.var.copy())
    sc.pp.normalize_total(path, target_sum=1e4)
    sc.pp.log1p(path)
    dice.tl.denoise(path, reference, n_samples=200, check=False)
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    shown = np.concatenate([path.obsm["X_dice_pca"][:, :2], path.obsm["X_dice_samples"][:, :, :2].reshape(-1, 2)])
    limits = shown.min(0) - 3, shown.max(0) + 3
    look = {"c": np.log10(parts.sum(1)), "cmap": "viridis", "s": 40, "zorder": 3, "edgecolors": "white", "lw": 0.5}
    titles = ("as measured", "posterior: mean and samples")
    for ax, key, title in zip(axes, ("X_dice_pca", "X_dice"), titles, strict=False):
        ax.scatter(*reference.obsm["X_dice"][:, :2].T, color="0.85", s=3, lw=0)
        if key == "X_dice":
            for i in (0, 5, 11):
                color = plt.get_cmap("viridis")(i / 11)
                ax.scatter(*path.obsm["X_dice_samples"][i, :, :2].T, color=color, s=8, alpha=0.6, lw=0)
        ax.plot(*path.obsm[key][:, :2].T, color="0.3", lw=1, zorder=2)
        points = ax.scatter(*path.obsm[key][:, :2].T, **look)
        ax.set(
            title=title, xlabel="latent 1", ylabel="latent 2", xlim=[x[0] for x in limits], ylim=[x[1] for x in limits]
        )
    figure.colorbar(points, ax=axes[1], label="log10 of the counts")
    last = path.obsm["X_dice"][-1]
    for key, label in (("X_dice_pca", "as measured"), ("X_dice", "posterior mean")):
        axes[2].plot(parts.sum(1), np.linalg.norm(path.obsm[key] - last, axis=1), marker="o", ms=4, label=label)
    spread = path.obs["dice_uncertainty"] * np.sqrt(last.size)
    axes[2].plot(parts.sum(1), spread, ls="--", color="0.3", label="posterior standard deviation")
    axes[2].set(xscale="log", xlabel="counts", ylabel="distance in all latents", title="distance to the deepest mean")
    axes[2].legend(frameon=False)
    return figure


@cache
def labelled() -> ad.AnnData:
    reference, query = teaseq()
    dice.tl.transfer_labels(query, reference, "cell_type")
    return query


def transfer() -> Figure:
    return dice.pl.transfer(labelled(), "cell_type", groupby="cell_type", return_fig=True)


def transfer_sets() -> Figure:
    return dice.pl.transfer(labelled(), "cell_type", return_fig=True)


def label_genes() -> Figure:
    genes = dice.tl.label_genes(labelled(), teaseq()[0], "cell_type", n_genes=8)
    return dice.pl.label_genes(genes, return_fig=True)


def reliability() -> Figure:
    return dice.pl.reliability(labelled(), "cell_type", return_fig=True)


def rho() -> Figure:
    reference, query = teaseq()
    dice.tl.tune_rho(query, reference)
    return dice.pl.rho(query, reference, color="cell_type", return_fig=True)


def report() -> Image.Image:
    """The first screen of a report, as headless chromium shows it."""
    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder) / "report.html", Path(folder) / "report.png"
        dice.pl.report(labelled(), page, reference=teaseq()[0], truth_key="cell_type")
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000"]
        command = ["chromium", *options, "--window-size=1200,860", f"--screenshot={shot}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        return Image.open(shot).convert("RGB")


FIGURES = {
    plot.__name__: plot
    for plot in (
        setup_1, setup_2, setup_3, setup_4, samples, samples_rho, fewer_clusters, more_clusters, held_out, other_study,
        latents, on_reference, uncertainty, novelty, prior, transfer, transfer_sets,
        label_genes, reliability, rho, report, measured_noise, depth_path,
    )
}  # fmt: skip


def rasterize(figure: Figure) -> Image.Image:
    stream = io.BytesIO()
    figure.savefig(stream, dpi=DPI, bbox_inches="tight")
    plt.close(figure)
    return Image.open(stream).convert("RGB")


def save(drawn: Figure | Image.Image, path: Path) -> None:
    """A small PNG: few colours, since these are points and lines."""
    image = rasterize(drawn) if isinstance(drawn, Figure) else drawn
    image.quantize(240, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {image.width} x {image.height}, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="figures to draw, by default all")
    names = parser.parse_args().names or list(FIGURES)
    mpl.use("Agg")
    prepare()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        save(FIGURES[name](), FOLDER / f"{name}.png")
