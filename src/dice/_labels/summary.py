"""The summary of an annotated query in ten lines, and scores of transferred labels against known labels."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.sparse.csgraph import connected_components

from dice import _log
from dice._arguments import said
from dice._data import read
from dice._data.matrix import Matrix
from dice._data.read import Transferred
from dice._data.value_checks import is_raw
from dice._errors import InputError
from dice._keys import CONFIDENT, STATUSES, AnnotateKeys, ClusterKeys, DenoiseKeys, LabelKeys, NoveltyKeys
from dice._labels.tree import LabelTree
from dice._model.arrays import DOUBTFUL
from dice._model.counts import MOSTLY, recover
from dice._model.prior import LearnedPrior
from dice._types import Codes, Floats, Mask

#: A cluster to look at has at least this many cells and this share of unconfident cells. Number of labels to list.
LOOKED_AT, DOUBTED, NAMED = 20, 0.5, 4
#: A query of fewer cells is small. With fewer genes, or a smaller share of confident labels, a next step is suggested.
SMALL_QUERY, OF_GENES, WEAK = 200, 500, 0.5


def summarize(
    adata: AnnData, reference: object, prior: LearnedPrior, *, layer: str | None, genes: str,
    labels_key: str | None, clustered: bool,
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Return the summary of an annotated query as text, and its figures. Only results of this call are used."""
    figures: dict[str, Any] = {"n_cells": adata.n_obs, "n_genes": len(prior.genes)}
    depths, cells = {"query": median_depth(adata, layer)}, f"{adata.n_obs:,} in the query"
    if isinstance(reference, AnnData):
        depths["reference"] = median_depth(reference, prior.params.get("layer"))
        figures["n_reference"], cells = reference.n_obs, f"{cells}, {reference.n_obs:,} in the reference"
    if adata.n_obs < SMALL_QUERY:
        cells += "; the query is small: fewer labels are confident, and small clusters and novel groups are not found"
    figures |= {"depth": depths["query"], "reference_depth": depths.get("reference"), "n_clusters": 0}
    denoised = read.record(adata, DenoiseKeys().uns)
    known, strategy = denoised["genes"]["text"], str(denoised["shift"]["strategy"])
    removed = "nothing was removed" if strategy == "none" else f"removed by shift={strategy!r}"
    counts = {who: "unknown, no counts" if depth is None else f"{depth:,.0f} counts" for who, depth in depths.items()}
    medians = ", ".join(f"of the {who} {text}" for who, text in counts.items())
    lines = {"genes": genes or f"genes of the prior: {known}", "cells": cells, "depth": f"median cell {medians}"}
    if prior.is_panel and prior.labels is not None:
        figures["held_out_accuracy"] = reached = prior.labels.card["accuracy"]
        lines["genes"] += f"; they give {reached:.0%} of held-out reference cells the right label at the query's depth"
    lines |= {"values": _values(layer, prior), "shift": removed, "clusters": "none: too few cells"}
    if clustered:
        choice = read.record(adata, ClusterKeys().uns)["choice"]
        lines["clusters"], figures["n_clusters"] = str(choice["why"]), int(choice["n_clusters"])
    if labels_key is not None:
        _add_labels(adata, LabelKeys(f"{labels_key}_dice"), lines, figures)
    else:
        columns = read.label_columns(reference) if isinstance(reference, AnnData) else []
        hint = f", for example {columns[0]!r}" if columns else ""
        lines["labels"] = f"none: pass the labels column of the reference as labels_key{hint}"
        clusters = "the clusters (dice.pl.clusters), and " if clustered else ""
        lines["look at"] = f"{clusters}cells with a large dice_uncertainty"
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines.items()), figures


def _add_labels(adata: AnnData, keys: LabelKeys, lines: dict[str, str], figures: dict[str, Any]) -> None:
    """Add the lines and figures of labels and novelty."""
    record, keys_novel = read.record(adata, keys.uns), NoveltyKeys()
    auc = float(record["params"]["shift_auc"])
    differs = "differs from" if auc > DOUBTFUL else "is like"
    lines["shift"] = f"the query {differs} the reference (AUC {auc:.2f}); labels are {_views(record['views'])}"
    given = read.column(adata, keys.label).value_counts()
    named = ", ".join(f"{name} {count:,}" for name, count in given.iloc[:NAMED].items())
    more = ", ..." if len(given) > NAMED else ""
    lines["labels"] = f"{len(given)} of the reference's {len(record['labels'])}: {named}{more}"
    status = read.column(adata, keys.status)
    shares = {name: float((status == name).mean()) for name in STATUSES} if len(status) else {}
    lines["status"] = ", ".join(f"{share:.0%} {name}" for name, share in shares.items())
    n_single, n_grouped = (int(read.column(adata, flag).sum()) for flag in (keys_novel.flag, keys_novel.group_flag))
    lines["novel"] = _novel(read.record(adata, keys_novel.uns), n_single, n_grouped)
    lines["look at"] = _first_advice(adata, keys, status, auc, n_grouped)
    lines |= _next_step(figures["n_genes"], adata.n_vars, shares.get(CONFIDENT, 1.0))
    figures |= {"shift_auc": auc} | {name.split()[0]: share for name, share in shares.items()} | {"n_novel": n_single}


def _values(layer: str | None, prior: LearnedPrior) -> str:
    """Return a text that says how the values of query and reference were normalised."""
    if prior.is_panel:
        return f"log-normalised on these genes alone in layers[{layer!r}]"
    own = AnnotateKeys().layer
    new = [who for who, used in (("query", layer), ("reference", prior.params.get("layer"))) if used == own]
    return f"raw counts of {' and '.join(new)}, log-normalised in layers[{own!r}]" if new else "used as they are"


def _views(table: Mapping[str, Any]) -> str:
    """Return the views that gave the labels, as text."""
    weights = np.ravel(table["weight"])
    if len(weights) == 1 or weights[0] == 1:
        return f"by the view {str(np.ravel(table['view'])[0])!r}"
    agreement = float(np.average(np.ravel(table["agreement"]), weights=weights))
    return f"the mean of {len(weights)} views, which agree with {agreement:.0%} of the labels"


def _novel(record: Mapping[str, Any], n_single: int, n_grouped: int) -> str:
    """Return the numbers of novel single cells and of cells in novel groups, as text."""
    shifted = float(record["params"]["shift_auc"]) > DOUBTFUL
    text = "single cells cannot be tested because the query differs" if shifted else f"{n_single:,} single cells"
    called = np.ravel(record["groups"]["novel"]).astype(bool)
    return f"{text}; {n_grouped:,} cells in {called.sum()} of {len(called)} fine groups"


def _next_step(n_genes: int, n_vars: int, confident: float) -> dict[str, str]:
    """Return a line with advice if few genes of the query were found, or if few labels are confident."""
    if n_genes < min(OF_GENES, n_vars / 2):
        found = f"{n_genes:,} of the query's {n_vars:,} genes are used"
        return {"try next": f"check that both name genes alike (gene_key=): {found}"}
    coarser = "coarser labels (dice.tl.safe_labels), or a reference of the same technology: few labels are confident"
    return {"try next": coarser} if confident < WEAK else {}


def _first_advice(adata: AnnData, keys: LabelKeys, status: "pd.Series[Any]", auc: float, n_novel: int) -> str:
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
        counts, whole = sample, np.ones(sample.shape[0], dtype=bool)
    else:
        counts, whole = (found := recover(sample)).counts, found.whole
    known = len(whole) and whole.mean() >= MOSTLY
    return float(np.median(np.asarray(counts.sum(1)).ravel()[whole])) if known else None


def score_labels(
    found: Transferred, safe: tuple[LabelTree, Codes], labels: Any, key: str, label_map: Mapping[str, Any]
) -> pd.DataFrame:
    """Score labels and safe labels (nodes (n,) of a tree) by known labels (n,), which `label_map` translates."""
    own, (tree, nodes) = pd.Categorical(labels), safe
    names, meanings = [str(name) for name in own.categories], {}
    for name, others in label_map.items():
        meanings[str(name)] = given = list(others) if np.iterable(others) and not isinstance(others, str) else [others]
        if lacking := [other for other in given if other not in found.names]:
            known, got = found.names[:20], lacking[:5]
            raise InputError(f"label_map[{said(name)}] must be labels of the reference such as {known}, got {got}.")
    meant = np.zeros((len(names), tree.n_labels), dtype=bool)
    for row, name in zip(meant, names, strict=True):
        # The name of a coarse label that is also a fine label includes its column.
        possible = meanings.get(name, [coarse if (coarse := f"{name} ({key})") in tree.names else name])
        for other in (other for other in possible if other in tree.names[:-1]):
            row |= tree.members[tree.names.index(other)]
    shared = np.asarray(meant.any(1))
    if not shared.any():
        raise InputError(
            f"adata.obs[{key!r}] and the reference have no label in common: pass "
            f"label_map={{{said(names[0] if names else 'name')}: ...}} with labels of the reference, {found.names[:5]}."
        )
    kept = (own.codes >= 0) & shared[own.codes]
    if n_others := int(((own.codes >= 0) & ~kept).sum()):
        others = [name for name, used in zip(names, shared, strict=True) if not used]
        _log.warn(
            f"{n_others} cells have labels that the reference lacks and are left out, for example {others[:5]}: pass "
            "their names in the reference with label_map=."
        )
    truth, meant = (np.cumsum(shared) - 1)[own.codes[kept]], meant[shared]
    codes = pd.Index(found.names).get_indexer(found.label.astype(object)[kept])
    table = label_scores_of(truth, meant, codes, found.sets[kept], found.confident[kept], tree, nodes[kept])
    return table.set_axis(pd.Index(["all cells", *np.array(names, dtype=object)[shared]], name=key))


def label_scores_of(
    truth: Codes, meant: Mask, given: Codes, sets: Mask, confident: Mask, tree: LabelTree, nodes: Codes
) -> pd.DataFrame:
    """Return the scores of all cells, then of the cells of each known label.

    `truth` (n,) are known labels, and `meant` (T, C) marks the reference labels that correspond to each known label.
    Predicted labels `given` (n,) are -1 for unassigned cells. The other arguments are sets (n, C), a mask (n,) of
    confident cells, and the nodes (n,) of safe labels.
    """
    right, finest = (given >= 0) & meant[truth, given], nodes < tree.n_labels
    columns = {
        "accuracy": right, "coverage": (sets & meant[truth]).any(1), "set_size": sets.sum(1), "confident": confident,
        "confident_accuracy": np.where(confident, right, np.nan),
        "safe_error": ~(tree.members[nodes] & meant[truth]).any(1),
        "safe_resolved": nodes < len(tree.names) - 1, "safe_finest": finest,
    }  # fmt: skip
    for depth, level in enumerate(tree.all_levels, 1):
        at = tree.at_level(depth)
        same = np.array([np.isin(at, at[row]) for row in meant])
        columns[f"accuracy_{level}"] = (given >= 0) & same[truth, given]
        columns[f"resolved_{level}"] = finest | (tree.depths[nodes] >= depth)
    cells = pd.DataFrame(columns).astype(float)
    table = pd.concat([cells.mean().to_frame().T, cells.groupby(truth).mean().reindex(range(len(meant)))])
    table.insert(0, "n_cells", [len(truth), *np.bincount(truth, minlength=len(meant))])
    table.insert(2, "f1", f1_scores(truth, meant, given))
    return table


def f1_scores(truth: Codes, meant: Mask, given: Codes) -> Floats:
    """Return the mean F1 over classes, then the F1 of the class of every known label.

    Known labels that share a reference label, and reference labels that share a known label, form one class.
    """
    links = np.zeros((sum(meant.shape),) * 2, dtype=bool)
    links[: len(meant), len(meant) :] = meant
    n, classes = connected_components(links, directed=False)
    known, named = np.split(classes, [len(meant)])
    right = (given >= 0) & meant[truth, given]
    hits = np.bincount(known[truth], weights=right, minlength=n)
    sizes = np.bincount(known[truth], minlength=n) + np.bincount(named[given[given >= 0]], minlength=n)
    f1 = 2 * hits / np.maximum(sizes, 1)
    return np.array([f1[np.unique(known)].mean(), *f1[known]])
