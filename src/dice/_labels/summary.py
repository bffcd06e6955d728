"""The summary of an annotated query, in ten lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._data import read
from dice._data.matrix import Matrix
from dice._data.value_checks import is_raw
from dice._data.write import as_plain
from dice._keys import CONFIDENT, STATUSES, AnnotateKeys, ClusterKeys, DenoiseKeys, LabelKeys, NoveltyKeys
from dice._labels.cells import is_panel
from dice._model.counts import MOSTLY, recover
from dice._model.prior import LearnedPrior
from dice._query.shift import DOUBTFUL

#: Clusters to look at have at least this many cells, and at least this share of cells that are not confident.
LOOKED_AT, DOUBTED = 20, 0.5
#: Maximum number of labels listed in the summary.
NAMED = 4
#: A query with fewer cells is called small. With fewer genes, or a smaller share of confident labels, the summary
#: suggests a next step.
SMALL_QUERY, OF_GENES, WEAK = 200, 500, 0.5


@dataclass(frozen=True)
class Overview:
    """Named lines of text, and the figures in them."""

    lines: dict[str, str]
    figures: dict[str, Any]

    def __str__(self) -> str:
        width = max(map(len, self.lines))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.lines.items())

    def record(self, call: Mapping[str, Any], warned: list[str]) -> dict[str, Any]:
        """Return the record for ``.uns``. A shift that was passed as a table is replaced by "given"."""
        asked = {**call, "shift": "given" if isinstance(call["shift"], Mapping) else call["shift"], "levels": None}
        kept = {"summary": str(self), "params": as_plain(self.figures), "call": as_plain(asked)}
        return kept | {"warnings": np.array(warned, dtype=str)}


def summarize(
    adata: AnnData, reference: object, prior: LearnedPrior, *, layer: str | None, genes: str,
    labels_key: str | None, clustered: bool,
) -> Overview:  # fmt: skip
    """Return the summary of an annotated query. Only results of this call are included."""
    figures: dict[str, Any] = {"n_cells": adata.n_obs, "n_genes": len(prior.genes)}
    depths, cells = {"query": median_depth(adata, layer)}, f"{adata.n_obs:,} in the query"
    if isinstance(reference, AnnData):
        depths["reference"] = median_depth(reference, prior.params.get("layer"))
        figures["n_reference"], cells = reference.n_obs, f"{cells}, {reference.n_obs:,} in the reference"
    if adata.n_obs < SMALL_QUERY:
        cells += "; the query is small: fewer labels are confident, and small clusters and novel groups are not found"
    figures |= {"depth": depths["query"], "reference_depth": depths.get("reference")}
    denoised = read.record(adata, DenoiseKeys().uns)
    text, strategy = denoised["genes"]["text"], str(denoised["shift"]["strategy"])
    removed = "nothing was removed" if strategy == "none" else f"removed by shift={strategy!r}"
    lines = {"genes": genes or f"those of the prior, {text}", "cells": cells, "depth": _depth(depths)}
    if is_panel(prior) and prior.labels is not None:
        figures["held_out_accuracy"] = reached = prior.labels.card["accuracy"]
        lines["genes"] += f"; they give {reached:.0%} of held-out reference cells the right label at the query's depth"
    lines |= {"values": _values(layer, prior), "shift": removed, "clusters": "none: too few cells"}
    figures["n_clusters"] = 0
    if clustered:
        choice = read.record(adata, ClusterKeys().uns)["choice"]
        lines["clusters"], figures["n_clusters"] = str(choice["why"]), int(choice["n_clusters"])
    if labels_key is not None:
        _add_labels(adata, LabelKeys(f"{labels_key}_dice"), lines, figures)
        return Overview(lines, figures)
    columns = read.label_columns(reference) if isinstance(reference, AnnData) else []
    hint = f", for example {columns[0]!r}" if columns else ""
    lines["labels"] = f"none: pass the labels column of the reference as labels_key{hint}"
    clusters = "the clusters (dice.pl.clusters), and " if clustered else ""
    lines["look at"] = f"{clusters}cells with a large dice_uncertainty"
    return Overview(lines, figures)


def _add_labels(adata: AnnData, keys: LabelKeys, lines: dict[str, str], figures: dict[str, Any]) -> None:
    """Add the lines and figures of labels and novelty."""
    record, keys_novel = read.record(adata, keys.uns), NoveltyKeys()
    auc = float(record["params"]["shift_auc"])
    differ = "differs from the reference" if auc > DOUBTFUL else "is like the reference"
    lines["shift"] = f"the query {differ} (AUC {auc:.2f}); labels are {_views(record)}"
    given = read.column(adata, keys.label).value_counts()
    named = ", ".join(f"{name} {count:,}" for name, count in given.iloc[:NAMED].items())
    lines["labels"] = (
        f"{len(given)} of the reference's {len(record['labels'])}: {named}{', ...' if len(given) > NAMED else ''}"
    )
    status = read.column(adata, keys.status)
    shares = {name: float((status == name).mean()) for name in STATUSES} if len(status) else {}
    lines["status"] = ", ".join(f"{share:.0%} {name}" for name, share in shares.items())
    n_single, n_grouped = (int(read.column(adata, flag).sum()) for flag in (keys_novel.flag, keys_novel.group_flag))
    lines["novel"] = _novel(read.record(adata, keys_novel.uns), n_single, n_grouped)
    lines["look at"] = _first_advice(adata, keys, status, auc, n_grouped)
    if advice := _next_step(figures["n_genes"], adata.n_vars, shares.get(CONFIDENT, 1.0)):
        lines["try next"] = advice
    figures |= {"shift_auc": auc} | {name.split()[0]: share for name, share in shares.items()} | {"n_novel": n_single}


def _values(layer: str | None, prior: LearnedPrior) -> str:
    """Return how the values of query and reference were made, as text."""
    if is_panel(prior):
        return f"log-normalised on these genes alone in layers[{layer!r}]"
    own = AnnotateKeys().layer
    new = [who for who, used in (("query", layer), ("reference", prior.params.get("layer"))) if used == own]
    return f"raw counts of {' and '.join(new)}, log-normalised in layers[{own!r}]" if new else "used as they are"


def _depth(medians: Mapping[str, float | None]) -> str:
    """Return the median depths of query and reference as text. A prior alone does not know its cells' depths."""
    texts = {who: "unknown, no counts" if depth is None else f"{depth:,.0f} counts" for who, depth in medians.items()}
    return "median cell " + ", ".join(f"of the {who} {text}" for who, text in texts.items())


def _views(record: Mapping[str, Any]) -> str:
    """Return the views that gave the labels, as text."""
    views = [str(name) for name in np.ravel(record["views"]["view"])]
    weights = np.ravel(record["views"]["weight"])
    if len(views) == 1 or weights[0] == 1:
        return f"by the view {views[0]!r}"
    agreement = float(np.average(np.ravel(record["views"]["agreement"]), weights=weights))
    return f"the mean of {len(views)} views, which agree with {agreement:.0%} of the labels"


def _novel(record: Mapping[str, Any], n_single: int, n_grouped: int) -> str:
    """Return the numbers of novel single cells and of cells in novel groups, as text."""
    shifted = float(record["params"]["shift_auc"]) > DOUBTFUL
    text = "single cells cannot be tested because the query differs" if shifted else f"{n_single:,} single cells"
    called = np.ravel(record["groups"]["novel"]).astype(bool)
    return f"{text}; {n_grouped:,} cells in {called.sum()} of {len(called)} fine groups"


def _next_step(n_genes: int, n_vars: int, confident: float) -> str | None:
    """Return what to try if few genes of the query were found, or if few labels are confident."""
    if n_genes < min(OF_GENES, n_vars / 2):
        return f"check that both name genes alike (gene_key=): {n_genes:,} of the query's {n_vars:,} genes are used"
    if confident < WEAK:
        return "coarser labels (dice.tl.safe_labels), or a reference of the same technology: few labels are confident"
    return None


def _first_advice(adata: AnnData, keys: LabelKeys, status: pd.Series[Any], auc: float, n_novel: int) -> str:
    """Return advice on the cells to look at first."""
    if n_novel:
        return f"{n_novel:,} cells in obs[{NoveltyKeys().group_flag!r}]: unlike all labels of the reference"
    if ClusterKeys().cluster in read.names(adata, "obs"):
        groups = read.column(adata, ClusterKeys().cluster)
        doubted = (status != CONFIDENT).groupby(groups, observed=True).agg(["mean", "size"])
        doubted = doubted[(doubted["size"] >= LOOKED_AT) & (doubted["mean"] >= DOUBTED)]
        if len(doubted):
            worst = doubted["mean"].idxmax()
            share, size = doubted.loc[worst]
            usual = read.column(adata, keys.set)[groups == worst].value_counts().index[0]
            return f"cluster {worst} ({size:,.0f} cells): {share:.0%} not confident, most frequent set {usual}"
    if auc > DOUBTFUL:
        return "cells whose label you know, because the query differs: dice.tl.evaluate(..., protocol='labels')"
    return f"cells whose obs[{keys.status!r}] is not confident"


def median_depth(adata: AnnData, layer: str | None) -> float | None:
    """Return the median number of counts per cell over all genes, from a sample of cells; None without counts."""
    sample = Matrix(adata, layer=layer).sample()
    if is_raw(sample):
        totals, counted = np.asarray(sample.sum(1)).ravel(), np.ones(sample.shape[0], dtype=bool)
    else:
        found = recover(sample)
        totals, counted = np.asarray(found.counts.sum(1)).ravel(), found.whole
    if not len(totals) or counted.mean() < MOSTLY:
        return None
    return float(np.median(totals[counted]))
