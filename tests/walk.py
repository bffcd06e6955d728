"""The way of a query cell through the package: which modules a call visits, and how often it changes layer.

    python tests/walk.py [denoise | transfer_labels]

A module counts once, however often it is visited. Layers are counted over the functions in the order of their first
visit; what serves all layers (options, log, names of slots) belongs to none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise

import anndata as ad
import numpy as np
import scanpy as sc
from scipy import sparse

import dice

LAYERS = ("_model", "_data", "_query", "_labels", "_clusters", "_features", "_train", "tl", "pp", "pl")


def counted_pair() -> tuple[ad.AnnData, ad.AnnData]:
    """A reference with its prior, and a query, of log-normalised Poisson counts."""
    rng = np.random.default_rng(0)
    codes = rng.integers(10, size=700)
    cells = ad.AnnData(sparse.csr_matrix(rng.poisson(2 * rng.gamma(0.3, size=(10, 500))[codes]).astype(np.float32)))
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    cells.obs["cell_type"] = codes.astype(str)
    reference, query = cells[:500].copy(), cells[500:].copy()
    dice.tl.train_prior(reference, training=dice.Training(max_steps=20))
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


def modules(visits: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(module for module, _ in visits))


def layer(module: str) -> str:
    part = module.split(".")[1] if "." in module else ""
    return part if part in LAYERS else ""


def changes_of_layer(visits: list[tuple[str, str]]) -> int:
    layers = [layer(module) for module, _ in visits if layer(module)]
    return sum(a != b for a, b in pairwise(layers))


def main() -> None:
    verb = sys.argv[1] if len(sys.argv) > 1 else "denoise"
    dice.settings.verbosity = 0
    reference, query = counted_pair()
    extra = ["cell_type"] if verb == "transfer_labels" else []
    visits = walk(lambda: getattr(dice.tl, verb)(query, reference, *extra))
    for module in modules(visits):
        print(f"{layer(module) or '-':<10} {module}")
    print(f"{len(modules(visits))} modules, {changes_of_layer(visits)} changes of layer")


if __name__ == "__main__":
    main()
