"""Results of every verb on simulated cells, as they were when somebody last looked at them.

Other tests say what a result must be like. These say that it is the same number as before: a changed sign, a dropped
term or a bound that is off by one shows here even where every property still holds. Every slot that a call writes is
kept as a few figures: its size, its mean and spread, and two weighted sums that depend on the order.

A change that is meant to change results is followed by

    python tests/test_pinned.py             # all of them, or the names of some

and the difference of pinned.json belongs to what is reviewed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dice

Call = Callable[[], Any]
PINNED = Path(__file__).with_name("pinned.json")
#: Largest difference, as a share of a figure's size; other machines round otherwise, and training enlarges that.
RELATIVE, ABSOLUTE = 3e-3, 2e-5
#: What differs from machine to machine: checksums, times, vectors that only span a space, and UMAP.
NO_RESULT = (
    "sha256",
    "version",
    "versions",
    "card",
    "seconds",
    "X_umap",
    "X_dice_umap",
)
#: Slots that the simulated cells have from the beginning.
GIVEN = ("type", "batch", "lineage", "protein", "spatial", "counts", "score", "other")
TYPES = ("B", "B memory", "T", "NK", "Mono")
PARENTS = {"B": "lymphocyte", "B memory": "lymphocyte", "T": "lymphocyte", "NK": "lymphocyte"}


# ---- cells -------------------------------------------------------------------------------------


def _profiles() -> np.ndarray:
    """Expression of the five types of the reference, two of which are close, and of one that only the query has."""
    profiles = np.random.default_rng(3).gamma(0.5, size=(6, 140)) + 0.02
    profiles[1] = profiles[0] * np.exp(0.35 * np.random.default_rng(4).normal(size=140))
    return profiles / profiles.sum(1, keepdims=True)


def _drawn(codes: np.ndarray, depth: float, seed: int, effects: np.ndarray) -> ad.AnnData:
    """Counts of cells of given types, with an effect of their batch on every gene."""
    rng = np.random.default_rng(seed)
    batches = rng.integers(len(effects), size=len(codes))
    rates = _profiles()[codes] * np.exp(effects[batches] + 0.15 * rng.normal(size=(len(codes), 140)))
    depths = depth * np.exp(0.4 * rng.normal(size=(len(codes), 1)))
    adata = ad.AnnData(sparse.csr_matrix(rng.poisson(depths * rates).astype(np.float32)))
    adata.obs_names = [f"{seed}-{i}" for i in range(len(codes))]
    adata.var_names = [f"GENE{(37 * i) % 140}" for i in range(140)]
    adata.obs["type"] = pd.Categorical.from_codes(codes, [*TYPES, "Mast"]).remove_unused_categories()
    adata.obs["batch"] = pd.Categorical.from_codes(batches, [f"batch {i}" for i in range(len(effects))])
    return adata


@cache
def _cells() -> tuple[ad.AnnData, ad.AnnData]:
    """Counts of a reference of two batches, and of a query of another technology without some genes."""
    rng = np.random.default_rng(5)
    reference = _drawn(rng.choice(5, 360, p=[0.3, 0.15, 0.25, 0.2, 0.1]), 900, 6, 0.1 * rng.normal(size=(2, 140)))
    query = _drawn(rng.choice(6, 200, p=[0.1, 0.2, 0.3, 0.1, 0.15, 0.15]), 350, 7, 0.4 * rng.normal(size=(2, 140)))
    for adata, seed in ((reference, 8), (query, 9)):
        noise = np.random.default_rng(seed).normal(size=(adata.n_obs, 3))
        codes = adata.obs["type"].cat.rename_categories(str).to_numpy()
        adata.obsm["protein"] = np.column_stack([codes == "T", codes == "Mono", codes == "B"]) * 2.0 + 0.5 * noise
        adata.obs["score"], adata.obs["other"] = adata.obsm["protein"][:, 0], noise[:, 1] ** 2
        adata.obs["lineage"] = [PARENTS.get(code, "other") for code in codes]
        adata.obsm["spatial"] = np.column_stack([codes == "T", codes == "NK"]) * 3.0 + noise[:, :2]
    return reference, query[:, 12:].copy()


def _logged(adata: ad.AnnData) -> ad.AnnData:
    totals = np.asarray(adata.X.sum(1))
    adata.layers["counts"] = adata.X
    adata.X = sparse.csr_matrix(adata.X.multiply(1e4 / totals)).astype(np.float32)
    adata.X.data = np.log1p(adata.X.data)
    return adata


@cache
def _trained(preset: str = "default", **options: Any) -> ad.AnnData:
    reference = _logged(_cells()[0].copy())
    steps = {} if preset == "gmm" else {"max_steps": 40, "batch_size": 64}
    training = dice.Training(calibration_fraction=0.25, validation_fraction=0.15, **steps)
    dice.tl.train_prior(reference, preset=preset, n_latent=8, labels_key="type", training=training, **options)
    return reference


def reference(preset: str = "default") -> ad.AnnData:
    return _trained(preset).copy()


def query() -> ad.AnnData:
    return _logged(_cells()[1].copy())


@cache
def _alike() -> ad.AnnData:
    codes = np.random.default_rng(10).choice(5, 150, p=[0.2, 0.2, 0.2, 0.2, 0.2])
    return _logged(_drawn(codes, 800, 11, np.zeros((1, 140))))


def alike() -> ad.AnnData:
    """A query of the reference's technology, with all of its genes."""
    return _alike().copy()


@cache
def _denoised() -> ad.AnnData:
    cells = query()
    dice.tl.denoise(cells, reference(), n_samples=8)
    return cells


# ---- calls -------------------------------------------------------------------------------------


def _on(
    verb: Callable[..., Any], cells: Callable[[], ad.AnnData], *arguments: Any, **options: Any
) -> Callable[[], Any]:
    """What a verb returns or writes, for fresh cells under the prior."""

    def call() -> Any:
        adata = cells()
        found = verb(adata, reference(), *arguments, **options)
        return adata if found is None else found

    return call


def _annotate_new() -> ad.AnnData:
    """All steps, with a prior of the shared genes that is trained on raw counts."""
    cells, labelled = (adata.copy() for adata in reversed(_cells()))
    training = dice.Training(max_steps=30, calibration_fraction=0.25)
    dice.tl.annotate(cells, labelled, "type", n_top_genes=90, training=training)
    return cells


def _labels_by(**options: Any) -> Callable[[], ad.AnnData]:
    return _on(dice.tl.transfer_labels, query, "type", **options)


def _alike_by(**options: Any) -> Callable[[], ad.AnnData]:
    return _on(dice.tl.transfer_labels, alike, "type", **options)


def _denoise_by(**options: Any) -> Callable[[], ad.AnnData]:
    return _on(dice.tl.denoise, lambda: query()[:60].copy(), **options)


def _by_levels() -> ad.AnnData:
    cells, labelled = query(), reference()
    coarse = np.arange(labelled.n_obs) % 9 == 0
    labelled.obs["type"] = labelled.obs["type"].cat.add_categories("lymphocyte")
    labelled.obs.loc[coarse & (labelled.obs["lineage"] == "lymphocyte").to_numpy(), "type"] = "lymphocyte"
    levels = dice.Levels("type", hierarchy=PARENTS)
    dice.tl.transfer_labels(cells, labelled, levels)
    dice.tl.safe_labels(cells, labelled, levels)
    return cells


def _safe() -> ad.AnnData:
    cells, labelled = query(), reference()
    dice.tl.transfer_labels(cells, labelled, ["lineage", "type"])
    dice.tl.safe_labels(cells, labelled, ["lineage", "type"], alpha=0.2)
    return cells


def _clustered(**options: Any) -> ad.AnnData:
    cells = _denoised().copy()
    dice.tl.cluster(cells, reference(), **options)
    return cells


def _markers() -> pd.DataFrame:
    return dice.tl.cluster_markers(_clustered(), reference(), n_genes=6)


def _genes(**options: Any) -> pd.DataFrame:
    cells = query()
    dice.tl.transfer_labels(cells, reference(), "type")
    return dice.tl.label_genes(cells, reference(), "type", n_genes=5, **options)


def _neighbors() -> ad.AnnData:
    cells = _denoised().copy()
    dice.tl.neighbors(cells, reference(), n_neighbors=8, n_samples=4)
    return cells


def _region() -> dict[str, Any]:
    region = dice.tl.credible_region(_denoised().copy(), 5, level=0.8)
    return {name: getattr(region, name) for name in region.__dataclass_fields__}


def _evaluated() -> pd.DataFrame:
    return dice.tl.evaluate(_denoised().copy(), "type", batch_key="batch", n_neighbors=10)


def _evaluated_labels() -> pd.DataFrame:
    cells = query()
    dice.tl.transfer_labels(cells, reference(), "type")
    return dice.tl.evaluate(cells, "type", protocol="labels")


def _mixture() -> ad.AnnData:
    cells = query()
    dice.tl.denoise(cells, reference("gmm"), n_samples=2, rho=0.5)
    return cells


def _prior_of(preset: str, **options: Any) -> dict[str, Any]:
    return dict(_trained(preset, **options).uns["dice"])


def _prior_alone(verb: Callable[..., Any], *, labelled: bool = True, **options: Any) -> ad.AnnData:
    """By a prior without the cells of its reference."""
    cells, prior = query(), dice.Prior.from_anndata(reference() if labelled else _unlabelled())
    with dice.settings.using(chunk_size=33):
        verb(cells, prior, **options)
    return cells


@cache
def _unlabelled() -> ad.AnnData:
    """Counts in a layer of their own, genes that are not scaled, and no labels."""
    adata = _logged(_cells()[0].copy())
    training = dice.Training(max_steps=20, calibration_fraction=0.3)
    dice.tl.train_prior(adata, n_latent=7, scale=False, training=training, random_state=3)
    return adata


def _several() -> ad.AnnData:
    """By two references, of which the second knows fewer types under other names."""
    cells, first, second = query(), reference(), reference()
    second = second[second.obs["type"] != "NK"].copy()
    training = dice.Training(max_steps=20, calibration_fraction=0.3)
    second.obs["type"] = second.obs["type"].cat.rename_categories({"Mono": "monocyte"})
    dice.tl.train_prior(second, n_latent=6, labels_key="type", training=training)
    dice.tl.annotate(cells, [first, (second, {"monocyte": "Mono", "B memory": "B"})], "type")
    return cells


def _odd_cells(verb: Callable[..., Any], *arguments: Any, **options: Any) -> ad.AnnData:
    """Cells without expression, cells that are no counts, and reference cells without a label."""
    cells, labelled = alike(), reference()
    values = cells.X.toarray()
    values[[3, 50]], values[60:75] = 0, values[60:75] + 0.1 * (values[60:75] > 0)
    cells = ad.AnnData(values, obs=cells.obs, var=cells.var)
    labelled.obs.loc[labelled.obs_names[::7], "type"] = np.nan
    verb(cells, labelled, *arguments, **options)
    return cells


def _own(verb: Callable[..., Any], **options: Any) -> ad.AnnData:
    """The reference's own cells as a query."""
    cells = reference()
    verb(cells, **options)
    return cells


def _own_density(residuals: Any) -> Any:
    return -(residuals.square() / (1 + residuals.abs())).sum(1)


def _panel() -> ad.AnnData:
    """Few genes of a shallow query, normalised on these genes alone."""
    cells, labelled = (adata.copy() for adata in reversed(_cells()))
    cells = cells[:, 40:95].copy()
    training = dice.Training(max_steps=20, calibration_fraction=0.25)
    dice.tl.annotate(cells, labelled, "type", training=training, check=dice.Checks(min_gene_overlap=0.1))
    return cells


def _streamed() -> ad.AnnData:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "denoised.zarr"
        dice.tl.denoise_to_zarr(query(), reference(), path, chunk_size=64, n_samples=2, shift="mean")
        return ad.read_zarr(path)


def _shared() -> dict[str, Any]:
    first, second = _cells()
    return {"genes": dice.pp.shared_genes(first, second, n_top_genes=50)}


def _corrected() -> ad.AnnData:
    adata = _logged(_cells()[0].copy())
    dice.pp.correct_batches(adata, "batch", n_comps=10)
    return adata


def _prepared() -> ad.AnnData:
    adata = _cells()[0].copy()
    dice.pp.prepare(adata, batch_key="batch", n_top_genes=80, min_genes=90, min_cells=60)
    return adata


def _clr(across: Any) -> ad.AnnData:
    adata = _cells()[0].copy()
    adata.obsm["protein"] = np.exp(np.abs(adata.obsm["protein"])).round()
    dice.pp.clr(adata, across=across)
    return adata


def _metrics() -> dict[str, Any]:
    cells = _denoised()
    embedding, labels, batches = cells.obsm["X_dice"], cells.obs["type"], cells.obs["batch"]
    metrics = dice.metrics
    return {
        "clisi": metrics.clisi(embedding, labels, perplexity=10),
        "ilisi": metrics.ilisi(embedding, batches, perplexity=10),
        "knn_macro_f1": metrics.knn_macro_f1(embedding, labels, n_neighbors=7, n_splits=3),
        "lisi_neighbors": metrics.lisi_neighbors(embedding, labels),
        "silhouette": metrics.silhouette(embedding, labels),
        "sweep": metrics.leiden_sweep(embedding, labels, resolutions=[0.1, 1.0]),
    }


CASES: dict[str, Callable[[], Any]] = {
    "prior": lambda: _prior_of("default"),
    "prior of a mixture": lambda: _prior_of("gmm"),
    "prior of the paper's network": lambda: _prior_of("paper-small", mixup=dice.Mixup(points=3)),
    "prior without scale": lambda: _prior_of("default", scale=False),
    "denoised": lambda: _denoised(),
    "denoised with a rho": _denoise_by(rho=0.7, n_samples=2),
    "denoised by the offset": _denoise_by(shift="offset"),
    "denoised by the mean": _denoise_by(shift="mean"),
    "denoised by clusters": _denoise_by(shift=dice.Shift("clusters", batch_key="batch")),
    "denoised with heavy tails": _denoise_by(likelihood=dice.StudentT(df=5, per_gene=True), rho=0.6),
    "denoised with heavy tails of cells": _denoise_by(
        likelihood=dice.StudentT(df=3), method=dice.Gibbs(n_iterations=9)
    ),
    "denoised by chains": _denoise_by(
        method=dice.Gibbs(n_chains=2, n_iterations=12, schedule="geometric", average="chains"), rho=[2.0, 0.3]
    ),
    "denoised by fast chains": _denoise_by(method=dice.Gibbs(fast=True), rho=0.5, likelihood="gaussian"),
    "denoised with noise per gene": _denoise_by(likelihood=dice.Gaussian("per_gene"), rho=0.5),
    "rho by counts": _on(dice.tl.tune_rho, query, grid=[0.2, 0.6, 1.8], criterion="counts"),
    "rho by genes": _on(dice.tl.tune_rho, query, grid=[0.2, 0.6, 1.8], criterion="genes"),
    "labels": _labels_by(),
    "labels at another alpha": _labels_by(alpha=0.25, groupby="batch"),
    "labels by one classifier": _labels_by(classifier=dice.Classifier("denoised", min_probability=0.7)),
    "labels in a tissue": _labels_by(classifier=dice.Classifier(spatial_key="spatial")),
    "labels by the offset": _labels_by(shift="offset"),
    "labels by centred cells": _labels_by(shift="centered"),
    "labels by standardised genes": _labels_by(shift="standardized"),
    "labels by profiles": lambda: {"prob": _labels_by(shift="profiles")().obsm["type_dice_prob"]},
    "labels without a shift": _labels_by(shift=False),
    "labels of a query that is alike": _alike_by(),
    "sets by aps": _alike_by(sets=dice.Sets("aps"), shift=False),
    "sets per class": _alike_by(sets=dice.Sets(per_class=True), shift=False),
    "labels at levels": _by_levels,
    "safe labels": _safe,
    "label genes": _genes,
    "label genes of groups": lambda: _genes(groupby="batch"),
    "label genes versus": lambda: _genes(label="B", versus="B memory"),
    "novelty": _on(dice.tl.novelty, query),
    "novelty of groups": _on(dice.tl.novelty, query, alpha=0.2, groupby="type"),
    "features": _on(dice.tl.transfer_features, query, "protein"),
    "features by batches": _on(
        dice.tl.transfer_features, query, "protein", alpha=0.3, reference_batch_key="batch", shift="mean"
    ),
    "clusters": _clustered,
    "clusters of samples": lambda: _clustered(level="fine", n_neighbors=8, n_splits=2),
    "cluster markers": _markers,
    "neighbors": _neighbors,
    "credible region": _region,
    "evaluated embedding": _evaluated,
    "evaluated labels": _evaluated_labels,
    "annotated": _on(dice.tl.annotate, query, "type"),
    "annotated with a new prior": _annotate_new,
    "annotated by several references": _several,
    "annotated panel": _panel,
    "annotated without labels": _on(dice.tl.annotate, query),
    "labels by the prior alone": lambda: _prior_alone(dice.tl.transfer_labels, shift=False),
    "labels of other levels by the prior alone": lambda: _prior_alone(
        dice.tl.transfer_labels, labels_key=dice.Levels("type", hierarchy=PARENTS)
    ),
    "novelty by the prior alone": lambda: _prior_alone(dice.tl.novelty, groupby="type"),
    "novelty without labels": lambda: _prior_alone(dice.tl.novelty, labelled=False, alpha=0.2),
    "novelty by groups of the reference": _on(dice.tl.novelty, alike, labels_key=None, groupby="type"),
    "denoised by the prior alone": lambda: _prior_alone(dice.tl.denoise, labelled=False, n_samples=2),
    "denoised by a mixture": lambda: _mixture(),
    "denoised by another density": _denoise_by(
        likelihood=_own_density, method=dice.Gibbs(n_iterations=8, n_chains=2), n_samples=2, rho=0.8
    ),
    "denoised odd cells": lambda: _odd_cells(dice.tl.denoise, n_samples=2),
    "labels of odd cells": lambda: _odd_cells(dice.tl.transfer_labels, "type"),
    "annotated odd cells": lambda: _odd_cells(dice.tl.annotate, "type"),
    "denoised own cells": lambda: _own(dice.tl.denoise),
    "clusters of own cells": lambda: _own(dice.tl.cluster),
    "features in columns": _on(dice.tl.transfer_features, alike, ["score", "other"], alpha=0.2),
    "denoised from file to file": _streamed,
    "shared genes": _shared,
    "corrected batches": _corrected,
    "prepared": _prepared,
    "clr of features": lambda: _clr("features"),
    "clr of cells": lambda: _clr("cells"),
    "metrics": _metrics,
}


# ---- odd calls -------------------------------------------------------------------------------


def _changed(**columns: Any) -> ad.AnnData:
    """The query with other columns of obs."""
    cells = query()
    for name, values in columns.items():
        cells.obs[name] = values
    return cells


def _with_genes(names: Callable[[list[str]], list[str]]) -> ad.AnnData:
    cells = query()
    cells.var_names = names(list(cells.var_names))
    return cells


def _with_values(change: Callable[[np.ndarray], np.ndarray], n: int = 60) -> ad.AnnData:
    cells = query()[:n].copy()
    return ad.AnnData(change(cells.X.toarray()), obs=cells.obs, var=cells.var, obsm=dict(cells.obsm))


def _with_value(value: float, n: int = 1) -> ad.AnnData:
    def change(values: np.ndarray) -> np.ndarray:
        values[:n, 5] = value
        return values

    return _with_values(change)


def _relabelled(codes: Callable[[np.ndarray], Any], **others: Any) -> ad.AnnData:
    labelled = reference()
    labelled.obs["type"] = codes(labelled.obs["type"].astype(str).to_numpy(dtype=object))
    for name, values in others.items():
        labelled.obs[name] = values
    return labelled


def _proteins(values: Any, key: str = "protein") -> ad.AnnData:
    labelled = reference()
    labelled.obsm["protein"] = values(labelled.obsm["protein"].copy())
    return labelled


def _spoiled(place: tuple[int, int] | slice, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        values[place] = value
        return values

    return change


def _denoise(cells: ad.AnnData, **options: Any) -> None:
    dice.tl.denoise(cells, reference(), **options)


def _transfer(cells: ad.AnnData, labelled: ad.AnnData | None = None, key: Any = "type", **options: Any) -> None:
    dice.tl.transfer_labels(cells, reference() if labelled is None else labelled, key, **options)


def _features(labelled: ad.AnnData, key: Any = "protein", **options: Any) -> None:
    dice.tl.transfer_features(query(), labelled, key, **options)


def _train(**options: Any) -> None:
    adata = _logged(_cells()[0].copy())
    training = dice.Training(max_steps=3, **options.pop("training", {}))
    dice.tl.train_prior(adata, **{"n_latent": 5, "training": training} | options)


def _prepare(**options: Any) -> None:
    adata = options.pop("adata", _cells()[0].copy())
    dice.pp.prepare(adata, **{"min_genes": 5, "n_top_genes": 50} | options)


#: What is refused, warned of, or only just passes: bounds are tried on both sides.
ODD_CALLS: dict[str, Callable[[], Any]] = {
    "half of the genes": lambda: _denoise(query()[:, :64].copy()),
    "few genes": lambda: _denoise(query()[:, :30].copy()),
    "too few genes": lambda: _denoise(query()[:, :25].copy()),
    "no gene": lambda: _denoise(_with_genes(lambda names: [f"X{name}" for name in names])),
    "genes twice": lambda: _denoise(_with_genes(lambda names: [names[1], *names[1:]])),
    "lower case": lambda: _denoise(_with_genes(lambda names: [name.lower() for name in names])),
    "transposed": lambda: _denoise(query().T.copy()),
    "one gene without a name": lambda: _denoise(_with_genes(lambda names: ["", *names[1:]])),
    "wild value": lambda: _denoise(_with_value(200.0)),
    "wild values": lambda: _denoise(_with_value(90.0, n=30)),
    "infinite value": lambda: _denoise(_with_value(np.inf)),
    "missing values": lambda: _denoise(_with_value(np.nan, n=7)),
    "negative value": lambda: _denoise(_with_value(-1.0)),
    "raw counts": lambda: _denoise(_with_values(lambda x: np.expm1(x).round())),
    "unlogged": lambda: _denoise(_with_values(np.expm1)),
    "logged twice": lambda: _denoise(_with_values(np.log1p)),
    "scaled": lambda: _denoise(_with_values(lambda x: (x - x.mean(0)) / (x.std(0) + 1))),
    "another sum": lambda: _denoise(_with_values(lambda x: np.log1p(np.expm1(x) / 100))),
    "other logarithm": lambda: _denoise(_with_values(lambda x: x / np.log(2))),
    "few cells": lambda: _denoise(query()[:1].copy()),
    "barcodes as batches": lambda: _denoise(
        _changed(batch=[f"b{i}" for i in range(200)]), shift=dice.Shift("offset", batch_key="batch")
    ),
    "almost barcodes": lambda: _denoise(
        _changed(batch=[f"b{i // 2}" for i in range(200)]), shift=dice.Shift("offset", batch_key="batch")
    ),
    "each of twenty from a batch": lambda: _denoise(
        _changed(batch=[f"b{i}" for i in range(200)])[:20].copy(), shift=dice.Shift("offset", batch_key="batch")
    ),
    "each of twenty-one from a batch": lambda: _denoise(
        _changed(batch=[f"b{i}" for i in range(200)])[:21].copy(), shift=dice.Shift("offset", batch_key="batch")
    ),
    "batches with gaps": lambda: _denoise(
        _changed(batch=["a", None] * 100), shift=dice.Shift("mean", batch_key="batch")
    ),
    "rho below zero": lambda: _denoise(query(), rho=-0.1),
    "three chains of nothing": lambda: _denoise(query(), method=dice.Gibbs(n_iterations=2, burn_in=2)),
    "one label": lambda: _transfer(query(), _relabelled(lambda types: ["a"] * len(types))),
    "labels that are numbers": lambda: _transfer(query(), _relabelled(lambda types: np.arange(len(types)) % 3)),
    "labels that are fractions": lambda: _transfer(query(), _relabelled(lambda types: np.arange(len(types)) / 3)),
    "labels that read alike": lambda: _transfer(
        query(), _relabelled(lambda types: np.array([1, "1", "b"] * 120, dtype=object))
    ),
    "blank labels": lambda: _transfer(query(), _relabelled(lambda types: np.where(types == "NK", " ", types))),
    "rare label": lambda: _transfer(
        query(), _relabelled(lambda types: np.where(np.arange(len(types)) < 4, "rare", types))
    ),
    "alpha that is too small": lambda: _transfer(alike(), alpha=0.001, shift=False),
    "alpha per class that is too small": lambda: _transfer(
        alike(), alpha=0.02, shift=False, sets=dice.Sets(per_class=True)
    ),
    "levels that are not nested": lambda: _transfer(query(), key=["batch", "type"]),
    "levels with the same names": lambda: _transfer(
        query(), _relabelled(lambda types: types, lineage=reference().obs["type"].astype(str)), key=["lineage", "type"]
    ),
    "hierarchy in a circle": lambda: _transfer(query(), key=dice.Levels("type", hierarchy={"B": "x", "x": "B"})),
    "groups without cells": lambda: _transfer(_changed(group=[None] * 200), groupby="group"),
    "positions that are no numbers": lambda: _transfer(query(), classifier=dice.Classifier(spatial_key="nowhere")),
    "features without cells": lambda: _features(dice.Prior.from_anndata(reference())),
    "features that are too large": lambda: _features(_proteins(_spoiled((3, 1), 1e30))),
    "features that are infinite": lambda: _features(_proteins(_spoiled((3, 1), np.inf))),
    "features of few cells": lambda: _features(_proteins(_spoiled(np.s_[12:, 1], np.nan))),
    "features that are constant": lambda: _features(_proteins(_spoiled(np.s_[:, 1], 2.0))),
    "features that are noise": lambda: _features(_proteins(lambda x: np.random.default_rng(0).normal(size=x.shape))),
    "features that are nowhere": lambda: _features(reference(), "nowhere"),
    "features that are words": lambda: _features(reference(), ["type"]),
    "features of a layer": lambda: _features(reference(), "layer:counts"),
    "features of no layer": lambda: _features(reference(), "layer:nowhere"),
    "features of no modality": lambda: _features(reference(), "mod:nowhere"),
    "clr of negative values": lambda: dice.pp.clr(_cells()[0].copy()),
    "novelty without power": lambda: dice.tl.novelty(alike(), reference(), alpha=0.001),
    "novelty of few cells": lambda: dice.tl.novelty(alike()[:3].copy(), reference()),
    "clusters of few cells": lambda: dice.tl.cluster(_denoised()[:15].copy(), reference()),
    "clusters of just enough cells": lambda: dice.tl.cluster(_denoised()[:16].copy(), reference()),
    "region of few samples": lambda: dice.tl.credible_region(_denoised(), 3, level=0.95),
    "region of nobody": lambda: dice.tl.credible_region(_denoised(), "nobody"),
    "more latents than genes": lambda: _train(n_latent=140),
    "as many latents as there can be": lambda: _train(n_latent=139),
    "elbow": lambda: _train(n_latent="elbow"),
    "labels of calibration cells": lambda: _train(labels_key="type", training={"calibration_fraction": 0.0}),
    "few validation cells": lambda: _train(training={"validation_fraction": 0.01}),
    "no gene in the mask": lambda: _train(mask_var=np.zeros(140, dtype=bool)),
    "genes of a mask": lambda: _train(mask_var=np.arange(140) % 2 == 0),
    "prepared of logarithms": lambda: _prepare(adata=query()),
    "prepared without mitochondria": lambda: _prepare(),
    "prepared to nothing": lambda: _prepare(min_genes=139),
    "prepared with few genes": lambda: _prepare(n_top_genes=139, min_cells=1),
    "prepared with all genes": lambda: _prepare(n_top_genes=140, min_cells=1),
    "prepared by small batches": lambda: _prepare(
        adata=_cells()[0][:9].copy(), batch_key="batch", min_genes=1, min_cells=1
    ),
    "annotated reference": lambda: dice.tl.annotate(query(), query(), "type", training=dice.Training(max_steps=2)),
    "annotated few cells": lambda: dice.tl.annotate(query()[:12].copy(), reference(), "type"),
}


def _said_of(name: str) -> dict[str, Any]:
    """How a call ended, and the numbers in what it said: words may become plainer."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ODD_CALLS[name]()
        except dice.DiceError as error:
            ended = [type(error).__name__, _numbers_in(str(error))]
        else:
            ended = ["passed", ""]
    told = sorted(_numbers_in(str(one.message)) for one in caught if isinstance(one.message, dice.DiceWarning))
    return {"ended": ended[0], "numbers": ended[1], "warnings": "; ".join(told), "n_warnings": len(told)}


def _numbers_in(text: str) -> str:
    return " ".join(re.findall(r"\d+(?:[.,]\d+)*", text))


# ---- numbers that were chosen ------------------------------------------------------------------


#: Layers that decide results.
LAYERS = ("_model", "_data", "_query", "_labels", "_clusters", "_features", "_train", "metrics", "options")


def chosen_numbers() -> dict[str, Any]:
    """Numbers that stand outside of functions: constants, defaults of fields and of arguments, by their names.

    Most were set on real data and act where no simulated cell comes: at 20,000 cells, after an hour, on a wide matrix.
    """
    found: dict[str, set[str]] = {}

    def keep(name: str, value: Any) -> None:
        if isinstance(value, int | float | tuple | list | range | dict) and re.search(r"\d", repr(value)):
            found.setdefault(name, set()).add(re.sub(r" at 0x\w+", "", repr(value)))

    source = Path(dice.__file__).parent
    for path in sorted(path for layer in LAYERS for path in (source / layer).rglob("*.py")):
        parts = ("dice", *path.relative_to(source).with_suffix("").parts)
        module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        for node in ast.parse(path.read_text()).body:
            names = [name.id for name in ast.walk(node) if isinstance(name, ast.Name) and name.id.isupper()]
            for name in names if isinstance(node, ast.Assign | ast.AnnAssign) else ():
                keep(name, vars(module).get(name))
            one = vars(module).get(getattr(node, "name", ""))
            members = list(vars(one).items()) if isinstance(node, ast.ClassDef) else []
            members = [(name, value) for name, value in members if not name.startswith("__")]
            for name, value in members:
                keep(f"{node.name}.{name}", value)
            for name, function in [("", one), *((f".{name}", getattr(one, name)) for name, _ in members)]:
                if inspect.isroutine(function):
                    for parameter in _parameters(function):
                        keep(f"{node.name}{name}({parameter.name})", parameter.default)
    return {name: sorted(values) for name, values in sorted(found.items())}


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # Some of C have none.
        return []


# ---- figures -----------------------------------------------------------------------------------


def figures(found: Any) -> dict[str, Any]:
    """Every slot of a result, as a few figures."""
    return dict(_figures(found, ""))


def _figures(found: Any, name: str) -> Iterator[tuple[str, Any]]:
    if name.rsplit("/", 1)[-1] in NO_RESULT:
        return
    if isinstance(found, ad.AnnData):
        for slot in ("obs", "var", "obsm", "varm", "obsp", "layers", "uns"):
            written = {key: value for key, value in getattr(found, slot).items() if key not in GIVEN}
            yield from _figures(written, slot)
    elif isinstance(found, Mapping):
        for key in sorted(found):
            yield from _figures(found[key], f"{name}/{key}")
    elif isinstance(found, pd.DataFrame):
        yield f"{name}/index", _of_words(found.index)
        for key in found:
            yield from _figures(found[key], f"{name}/{key}")
    elif isinstance(found, str) and found.startswith("{"):
        yield from _figures(json.loads(found), name)
    elif isinstance(found, str | bool | type(None)):
        yield name, "a checksum" if isinstance(found, str) and re.fullmatch("[0-9a-f]{64}", found) else found
    elif sparse.issparse(found):
        yield name, _of_numbers(np.asarray(found.todense()))
    elif isinstance(found, int | float | np.number):
        yield name, float(found)
    else:
        values = np.asarray(found)
        yield name, _of_numbers(values) if values.dtype.kind in "fiub" else _of_words(values)


def _of_numbers(values: np.ndarray) -> list[Any]:
    """Shape, share of finite values, mean, spread and two sums over values in their order."""
    flat = values.astype(np.float64).ravel()
    finite = np.isfinite(flat)
    flat = np.where(finite, flat, 0.0)
    waves = (np.cos(np.arange(len(flat)) * step) for step in (0.7, 2.3))
    sums = [float(flat @ wave) / max(len(flat), 1) ** 0.5 for wave in waves]
    figures = [float(finite.mean()), float(flat.mean()), float(flat.std()), *sums] if len(flat) else []
    return [list(values.shape), *(float(f"{figure:.5g}") for figure in figures)]


def _of_words(values: Any) -> dict[str, Any]:
    """How often each of the first words occurs, and a number that depends on their order."""
    words = pd.Series(np.asarray(values)).astype(str)
    codes, names = pd.factorize(words, sort=True)
    return {"n": len(words), "counts": np.bincount(codes, minlength=len(names))[:6].tolist(),
            "names": list(names[:6]), "order": _of_numbers(codes)}  # fmt: skip


def _are_figures(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 6 and isinstance(value[0], list)


def differences(found: Any, pinned: Any, name: str = "") -> Iterator[str]:
    """Everything that is not as it was."""
    if isinstance(found, dict) and isinstance(pinned, dict):
        for key in sorted({*found, *pinned}):
            if key in found and key in pinned:
                yield from differences(found[key], pinned[key], f"{name} {key}")
            else:
                yield f"{name} {key} {'is new' if key in found else 'is gone'}"
    elif _are_figures(found) and _are_figures(pinned) and len(found) == len(pinned):
        # Sums over an array are compared by the size of its values: they may be small by chance.
        size = float(np.hypot(*pinned[2:4]))
        if found[0] != pinned[0] or not np.allclose(found[1:], pinned[1:], rtol=0, atol=RELATIVE * size + ABSOLUTE):
            yield f"{name} is {found}, was {pinned}"
    elif isinstance(found, float) and isinstance(pinned, float | int):
        if not np.isclose(found, pinned, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True):
            yield f"{name} is {found}, was {pinned}"
    elif found != pinned:
        yield f"{name} is {found}, was {pinned}"


def result(name: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(figures(CASES[name]())))


@pytest.mark.parametrize("name", CASES)
def test_a_result_is_as_it_was(name):
    assert not list(differences(result(name), json.loads(PINNED.read_text())[name]))


@pytest.mark.parametrize("name", ODD_CALLS)
def test_an_odd_call_ends_as_it_did(name):
    assert _said_of(name) == json.loads(PINNED.read_text())["odd calls"][name]


def test_chosen_numbers_are_as_they_were():
    assert not list(differences(chosen_numbers(), json.loads(PINNED.read_text())["numbers"]))


def _lines(slots: dict[str, Any]) -> str:
    return ",\n".join(f" {json.dumps(slot)}: {json.dumps(figures)}" for slot, figures in slots.items())


def main() -> None:
    dice.settings.verbosity = 0
    pinned = json.loads(PINNED.read_text()) if PINNED.exists() else {}
    others = {"odd calls": lambda: {odd: _said_of(odd) for odd in ODD_CALLS}, "numbers": chosen_numbers}
    for name in sys.argv[1:] or [*CASES, *others]:
        pinned[name] = result(name) if name in CASES else others[name]()
    lines = (f'"{name}": {{\n{_lines(pinned[name])}\n}}' for name in [*CASES, *others])
    PINNED.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
