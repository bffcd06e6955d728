"""Labels at the level that the data support."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice import _log
from dice._arguments import share
from dice._data import read
from dice._data.checks import read_labels
from dice._data.results import Transferred
from dice._data.store import Prior, check_order, find_prior
from dice._data.write import Slots, as_plain, check_writable, result_key, write
from dice._errors import InputError
from dice._keys import LabelKeys, SafeKeys
from dice._labels.model import LabelModel
from dice._labels.stored import read_or_learn
from dice._labels.tree import LabelTree, hierarchy_of
from dice._types import Codes, Floats


@_log.once_per_object
def safe_labels(
    adata: AnnData,
    reference: AnnData | Prior | str | os.PathLike[str],
    labels_key: str | None = None,
    *,
    levels: Sequence[str] | None = None,
    hierarchy: Mapping[str, str] | None = None,
    alpha: float = 0.1,
    prior_key: str = "dice",
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Give every cell the finest label whose error rate is at most alpha, along a tree of labels.

    Each cell starts at its most likely label and moves towards the root of the tree until the node is likely enough.
    If the query is like the reference, the threshold is calibrated on held-out reference cells. If it differs, the
    probabilities of :func:`dice.tl.transfer_labels`, which allow for the shift, set the threshold.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.transfer_labels` or :func:`dice.tl.annotate`.
    reference
        The reference, prior or path that gave the labels.
    labels_key
        Column of the reference whose labels were transferred. None takes the labels that the prior was trained with.
    levels
        Columns of ``reference.obs`` with coarser labels, from coarse to fine. Each must be nested in the one before.
    hierarchy
        Parent of every label and node, for example ``{"CD4 naive": "T cell", "T cell": "lymphocyte"}``. Without
        `levels` and `hierarchy` the tree is learned: labels that calibration cells confuse are joined first.
    alpha
        Share of cells whose label may be wrong.
    prior_key
        Key of the prior in the reference.
    key_added
        Key of the safe labels, by default ``"<labels_key>_dice_safe"``.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets, for ``labels_key="cell_type"``:

    ``adata.obs["cell_type_dice_safe"]`` categorical
        The finest label that can be trusted. ``"unresolved"`` is the root of the tree. Cells that are ``"confident"``
        keep their label.
    ``adata.obs["cell_type_dice_safe_level"]`` categorical
        The level of that label: a column of `levels`, or the number of steps below the root.
    ``adata.obs["cell_type_dice_safe_prob"]`` float32
        Probability of that label.
    ``adata.uns["cell_type_dice_safe"]``
        The tree (``node``, ``parent``), ``n_labels`` and ``n_cells`` of every node, ``call`` and ``params``:
        ``threshold``, ``expected_error``, ``resolved`` (share of cells below the root) and ``finest`` (share of cells
        with a label of the reference).

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    >>> dice.tl.transfer_labels(query, reference, "cell_type")
    >>> dice.tl.safe_labels(query, reference, "cell_type")
    >>> sorted(query.obs["cell_type_dice_safe"].unique())
    ['Cluster 1', 'Cluster 2']
    """
    check_writable(adata, copy=copy)
    check_order(adata, reference, prior_key)
    alpha, prior = share("alpha", alpha), find_prior(reference, key=prior_key)
    named = prior.params.get("labels_key") if labels_key is None else labels_key
    if named is None:
        raise InputError("The prior was trained without labels: pass the column that was transferred as labels_key.")
    default = f"{named}_dice_safe"
    keys = SafeKeys(default if key_added is None else result_key(adata, key_added, default))
    found, record = Transferred.of(adata, str(named), None), read.record(adata, LabelKeys(f"{named}_dice").uns)
    model, _ = read_or_learn(reference, prior, named, prior_key, int(record["call"].get("random_state", 0)))
    if model.names != found.names:
        raise InputError("The query has labels of another reference: pass the reference that gave them.")
    tree, depths = _tree(reference, model, named, levels, hierarchy)
    strength = float(record["params"]["shift_strength"])
    calibrated = tree.calibrated(model.calibration(), model.calibration_codes, alpha) if strength < 1 else 0.0
    expected = tree.expected(found.probabilities, alpha) if strength > 0 and adata.n_obs else 0.0
    threshold = (1 - strength) * calibrated + strength * expected
    nodes = tree.nodes(found.probabilities, threshold)
    nodes = np.where(found.confident, found.probabilities.argmax(1), nodes)
    source = "levels" if levels is not None else "learned" if hierarchy is None else "hierarchy"
    call = {"labels_key": named, "tree": source, "alpha": alpha, "prior_key": prior_key}
    slots = _slots(keys, tree, depths, nodes, tree.probability(found.probabilities, nodes), call, threshold)
    return write(adata, slots, copy=copy)


def _tree(
    reference: Any,
    model: LabelModel,
    labels_key: str,
    levels: Sequence[str] | None,
    hierarchy: Mapping[str, str] | None,
) -> tuple[LabelTree, list[str]]:
    """The tree of labels, and the name of the level of every node."""
    if levels is not None and hierarchy is not None:
        raise InputError("levels= and hierarchy= both describe the tree: pass one of them.")
    if levels is None:
        learned = hierarchy is None
        tree = (
            LabelTree.learned(model.names, model.confusion) if learned else LabelTree.of(model.names, hierarchy or {})
        )
        return tree, [str(depth) for depth in tree.depths]
    if not isinstance(reference, AnnData):
        raise InputError("levels= are columns of the reference's cells: pass the reference, or hierarchy=.")
    if isinstance(levels, str) or labels_key in levels:
        raise InputError(f"levels must be a list of columns that are coarser than {labels_key!r}, got {levels!r}.")
    columns = {key: read_labels(reference, key, "reference") for key in (*levels, labels_key)}
    known = np.all([values.codes >= 0 for values in columns.values()], axis=0)
    named = {key: np.asarray(values).astype(str)[known] for key, values in columns.items()}
    tree = LabelTree.of(model.names, hierarchy_of({key: list(values) for key, values in named.items()}))
    place = {name: key for key, values in named.items() for name in set(values)}
    return tree, [place.get(name, labels_key) for name in tree.names]


def _slots(
    keys: SafeKeys,
    tree: LabelTree,
    levels: list[str],
    nodes: Codes,
    probability: Floats,
    call: dict[str, Any],
    threshold: float,
) -> Slots:
    """The safe label of every cell, its level and probability, and the record of the call."""
    root = len(tree.names) - 1
    levels = [*levels[:root], tree.names[root]]
    used = np.unique(nodes)
    label = pd.Categorical([tree.names[node] for node in nodes], categories=[tree.names[node] for node in used])
    params = {
        "threshold": threshold,
        "expected_error": float(1 - probability.mean()) if len(nodes) else 0.0,
        "resolved": float((nodes != root).mean()) if len(nodes) else 0.0,
        "finest": float((nodes < tree.n_labels).mean()) if len(nodes) else 0.0,
    }
    table = {
        "node": np.array(tree.names, dtype=str),
        "parent": np.array([tree.names[parent] for parent in tree.parents], dtype=str),
        "n_labels": tree.members.sum(1),
        "n_cells": np.bincount(nodes, minlength=len(tree.names)),
    }
    return Slots(
        obs={
            keys.label: label,
            keys.level: pd.Categorical([levels[node] for node in nodes]),
            keys.probability: probability.astype(np.float32),
        },
        uns={keys.uns: table | {"params": params, "call": as_plain(call)}},
    )
