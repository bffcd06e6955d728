"""Scores of transferred labels and sets against known labels, which may have different names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from dice import _log
from dice._arguments import said
from dice._data.read import Transferred
from dice._errors import InputError
from dice._labels.tree import LabelTree
from dice._types import Codes, Floats, Mask


def score_labels(
    found: Transferred, safe: tuple[LabelTree, Codes], labels: NDArray[Any], key: str, label_map: Mapping[str, Any]
) -> pd.DataFrame:
    """Compare labels, and safe nodes (n,) of the tree, with known labels (n,), through a mapping of names."""
    own, meanings, (tree, nodes) = pd.Categorical(labels), _meanings(label_map, found.names), safe
    names = [str(name) for name in own.categories]
    meant = np.zeros((len(names), tree.n_labels), dtype=bool)
    for row, name in zip(meant, names, strict=True):
        # A coarse label that is the name of a fine one too has its column in its name.
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
    given = pd.Index(found.names).get_indexer(found.label.astype(object)[kept])
    table = label_scores_of(truth, meant, given, found.sets[kept], found.confident[kept], tree, nodes[kept])
    return table.set_axis(pd.Index(["all cells", *np.array(names, dtype=object)[shared]], name=key))


def _meanings(label_map: Mapping[str, Any], known: list[str]) -> dict[str, list[Any]]:
    """Return the names of every known label in the reference."""
    meanings = {}
    for name, others in label_map.items():
        meanings[str(name)] = [others] if others is None or isinstance(others, str) else list(others)
        lacking = [other for other in meanings[str(name)] if other not in known]
        if lacking:
            raise InputError(
                f"label_map[{said(name)}] must be labels of the reference such as {known[:20]}, got {lacking[:5]}."
            )
    return meanings


def label_scores_of(
    truth: Codes, meant: Mask, given: Codes, sets: Mask, confident: Mask, tree: LabelTree, nodes: Codes
) -> pd.DataFrame:
    """Return the scores of all cells, then of the cells of each known label.

    Parameters
    ----------
    truth
        Known label (n,) of every cell.
    meant
        Mask (T, C) of the reference labels that correspond to each known label.
    given
        Predicted label (n,) of every cell; -1 for unassigned cells.
    sets, confident
        Prediction sets (n, C), and a mask (n,) of the cells with the status "confident".
    tree, nodes
        Tree of the labels, and the node (n,) of every cell's safe label.
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

    Known labels with the same reference label form one class. Reference labels of the same known label do too.
    """
    n_known, n_names = meant.shape
    links = np.zeros((n_known + n_names,) * 2, dtype=bool)
    links[:n_known, n_known:] = meant
    n, classes = connected_components(links, directed=False)
    known, named = np.split(classes, [n_known])
    right = (given >= 0) & meant[truth, given]
    hits = np.bincount(known[truth], weights=right, minlength=n)
    sizes = np.bincount(known[truth], minlength=n) + np.bincount(named[given[given >= 0]], minlength=n)
    f1 = 2 * hits / np.maximum(sizes, 1)
    return np.array([f1[np.unique(known)].mean(), *f1[known]])
