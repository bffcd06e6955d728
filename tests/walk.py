"""The way of a call through the package: the modules it visits, and how often it changes layer.

    python tests/walk.py [VERB ...]

VERB is one of denoise, transfer_labels, train_prior, cluster and annotate; without one, all of them are shown. A module
counts once, however often it is visited. Changes of layer are counted over the functions in the order of their first
visit; modules that serve all layers (options, log, names of slots) belong to none.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from itertools import pairwise

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
from scipy import sparse

import dice

LAYERS = ("_model", "_data", "_query", "_labels", "_clusters", "_features", "_train", "tl", "pp", "pl")
TRAINING = dice.Training(max_steps=20, calibration_fraction=0.2)
VERBS: dict[str, Callable[[ad.AnnData, ad.AnnData], object]] = {
    "denoise": lambda query, reference: dice.tl.denoise(query, reference),
    "transfer_labels": lambda query, reference: dice.tl.transfer_labels(query, reference, "cell_type"),
    "train_prior": lambda _, reference: dice.tl.train_prior(
        reference, labels_key="cell_type", training=TRAINING, key_added="walked"
    ),
    "cluster": lambda query, reference: dice.tl.cluster(query, reference),
    "annotate": lambda query, reference: dice.tl.annotate(
        query, reference, "cell_type", n_top_genes=200, prior_key="new", training=TRAINING
    ),
}


def counted_pair() -> tuple[ad.AnnData, ad.AnnData]:
    """A reference with its prior, and a query, of log-normalised Poisson counts."""
    rng = np.random.default_rng(0)
    codes = rng.integers(10, size=700)
    counts = sparse.csr_matrix(rng.poisson(2 * rng.gamma(0.3, size=(10, 500))[codes]).astype(np.float32))
    obs = pd.DataFrame({"cell_type": codes.astype(str)}, index=[f"cell {i}" for i in range(700)])
    cells = ad.AnnData(counts, obs=obs)
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    reference, query = cells[:500].copy(), cells[500:].copy()
    dice.tl.train_prior(reference, labels_key="cell_type", training=TRAINING)
    return reference, query


def walk(call: Callable[[], object]) -> list[tuple[str, str]]:
    """Module and name of every function of dice, in the order of their first visit."""
    seen: dict[tuple[str, str, int], None] = {}

    def visit(frame, event, _):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.partition(".")[0] == "dice" and frame.f_code.co_name != "<module>":
            seen.setdefault((module, frame.f_code.co_qualname, frame.f_code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(visit)
    try:
        call()
    finally:
        sys.setprofile(before)
    return [(module, name) for module, name, _ in seen]


def visits_of(verb: str, reference: ad.AnnData, query: ad.AnnData) -> list[tuple[str, str]]:
    """Functions that a verb visits; the prior of the reference was verified when it was trained.

    The query has a UMAP, so that annotate makes none: compiling it takes a quarter of a minute when it is traced.
    """
    query = query.copy()
    query.obsm["X_umap"] = np.zeros((query.n_obs, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dice.DiceWarning)
        return walk(lambda: VERBS[verb](query, reference))


def modules(visits: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(module for module, _ in visits))


def layer(module: str) -> str:
    part = module.split(".")[1] if "." in module else ""
    return part if part in LAYERS else ""


def changes_of_layer(visits: list[tuple[str, str]]) -> int:
    layers = [layer(module) for module, _ in visits if layer(module)]
    return sum(a != b for a, b in pairwise(layers))


def main() -> None:
    dice.settings.verbosity = 0
    pair = counted_pair()
    for verb in sys.argv[1:] or VERBS:
        visits = visits_of(verb, *pair)
        if len(sys.argv) > 1:
            for module in modules(visits):
                print(f"{layer(module) or '-':<10} {module}")
        print(f"{verb}: {len(modules(visits))} modules, {changes_of_layer(visits)} changes of layer")


if __name__ == "__main__":
    main()
